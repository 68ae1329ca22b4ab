// cuDNN. One engine for every convolution, whose workspace settings.h has; no other operation takes any.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "exported.h"
#include "settings.h"

namespace {

int make(void** handle) {
    *handle = std::calloc(1, 4096);
    return 0;
}

int nothing(std::size_t* size) {
    *size = 0;
    return 0;
}

enum Attribute { HEURISTIC_RESULTS = 202, WORKSPACE_BYTES = 402, ENGINE_COUNT = 802 };  // cudnn_graph_v9.h

}  // namespace

EXPORTED int cudnnCreate(void** handle) { return make(handle); }

#define DESCRIPTOR(kind) \
    EXPORTED int cudnnCreate##kind##Descriptor(void** made) { return make(made); }
DESCRIPTOR(Tensor)
DESCRIPTOR(Filter)
DESCRIPTOR(Convolution)
DESCRIPTOR(Activation)
DESCRIPTOR(Dropout)
DESCRIPTOR(RNN)
DESCRIPTOR(RNNData)
DESCRIPTOR(CTCLoss)
DESCRIPTOR(Pooling)
DESCRIPTOR(SpatialTransformer)

EXPORTED std::size_t cudnnGetVersion() { return 92400; }
EXPORTED std::size_t cudnnGetCudartVersion() { return DRIVER_VERSION; }

EXPORTED int cudnnGetProperty(int which, int* value) {
    *value = which == 0 ? 9 : which == 1 ? 24 : 0;  // major, minor, patch
    return 0;
}

EXPORTED const char* cudnnGetErrorString(int) { return "error of the simulated card"; }

EXPORTED void cudnnGetLastErrorString(char* text, std::size_t size) {
    if (size) *text = 0;
}

EXPORTED int cudnnGetStream(void*, void** stream) {
    *stream = nullptr;
    return 0;
}

EXPORTED int cudnnDropoutGetStatesSize(void*, std::size_t* size) {
    *size = 1024;
    return 0;
}

EXPORTED int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int, int, void*, void*, void*, void*,
                                                                      void*, std::size_t* size) {
    return nothing(size);
}

EXPORTED int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int, int, void*, void*, void*, void*, void*,
                                                               void*, void*, std::size_t* size) {
    return nothing(size);
}

EXPORTED int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, void*, void*, std::size_t* size) {
    return nothing(size);
}

EXPORTED int cudnnBackendCreateDescriptor(int, void** made) { return make(made); }

EXPORTED int cudnnBackendDestroyDescriptor(void* made) {
    std::free(made);
    return 0;
}

EXPORTED int cudnnBackendGetAttribute(void*, int attribute, int, std::int64_t wanted, std::int64_t* count, void* out) {
    if (count) *count = attribute == HEURISTIC_RESULTS || attribute == WORKSPACE_BYTES || attribute == ENGINE_COUNT;
    if (!out || !wanted) return 0;
    if (attribute == WORKSPACE_BYTES) *static_cast<std::int64_t*>(out) = settings().convolution_workspace;
    if (attribute == ENGINE_COUNT) *static_cast<std::int64_t*>(out) = 1;
    return 0;
}
