// The runtime's streams, events, graphs and kernels. All work is done when its call returns; a kernel's work is none.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "exported.h"
#include "settings.h"

namespace {

struct Stream {
    int priority;
    bool captures;
};

Stream& stream_of(cudaStream_t handle) {
    static Stream usual{};
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    return number <= 2 ? usual : *reinterpret_cast<Stream*>(handle);  // 0 to 2: legacy and per-thread default streams
}

using Clock = std::chrono::steady_clock;

struct Launch {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
thread_local Launch launch_;

// The capability that a kernel was compiled for: the highest of those in torch's wheels that the card can run.
int compiled_for() {
    const int card = 10 * settings().major + settings().minor;
    int found = 0;
    for (const int capability : {50, 60, 70, 75, 80, 86, 90, 100, 120})
        if (capability <= card) found = capability;
    return found;
}

}  // namespace

EXPORTED cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
    *stream = reinterpret_cast<cudaStream_t>(new Stream{priority, false});
    return cudaSuccess;
}

EXPORTED cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

EXPORTED cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

EXPORTED cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete reinterpret_cast<Stream*>(stream);
    return cudaSuccess;
}

EXPORTED cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    *priority = stream_of(stream).priority;
    return cudaSuccess;
}

EXPORTED cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    *status = stream_of(stream).captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

// The edges' parameter is there from CUDA 13 on; both builds of torch take what comes before it.
EXPORTED cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                              unsigned long long* id, cudaGraph_t* graph,
                                              const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                              size_t* count) {
    cudaStreamIsCapturing(stream, status);
    if (id) *id = 1;
    if (graph) *graph = reinterpret_cast<cudaGraph_t>(&stream_of(stream));
    if (nodes) *nodes = nullptr;
    if (edges) *edges = nullptr;
    if (count) *count = 0;
    return cudaSuccess;
}

EXPORTED cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    stream_of(stream).captures = true;
    return cudaSuccess;
}

EXPORTED cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    stream_of(stream).captures = false;
    *graph = static_cast<cudaGraph_t>(std::malloc(1));
    return cudaSuccess;
}

EXPORTED cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t, unsigned long long) {
    *made = static_cast<cudaGraphExec_t>(std::malloc(1));
    return cudaSuccess;
}

EXPORTED cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    std::free(graph);
    return cudaSuccess;
}

EXPORTED cudaError_t cudaGraphExecDestroy(cudaGraphExec_t made) {
    std::free(made);
    return cudaSuccess;
}

EXPORTED cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* count) {
    *count = 1;
    return cudaSuccess;
}

EXPORTED cudaError_t cudaUserObjectCreate(cudaUserObject_t* made, void*, cudaHostFn_t, unsigned, unsigned) {
    *made = static_cast<cudaUserObject_t>(std::malloc(1));
    return cudaSuccess;
}

EXPORTED cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
    function(data);
    return cudaSuccess;
}

EXPORTED cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned) {
    function(stream, cudaSuccess, data);
    return cudaSuccess;
}

EXPORTED cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    *event = reinterpret_cast<cudaEvent_t>(new Clock::time_point);
    return cudaSuccess;
}

EXPORTED cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

EXPORTED cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete reinterpret_cast<Clock::time_point*>(event);
    return cudaSuccess;
}

EXPORTED cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t, unsigned) {
    *reinterpret_cast<Clock::time_point*>(event) = Clock::now();
    return cudaSuccess;
}

EXPORTED cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, 0);
}

EXPORTED cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    const auto elapsed = *reinterpret_cast<Clock::time_point*>(to) - *reinterpret_cast<Clock::time_point*>(from);
    *milliseconds = std::chrono::duration<float, std::milli>(elapsed).count();
    return cudaSuccess;
}

EXPORTED unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    launch_ = {grid, block, shared, stream};
    return 0;
}

EXPORTED cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    *grid = launch_.grid;
    *block = launch_.block;
    *shared = launch_.shared;
    *static_cast<cudaStream_t*>(stream) = launch_.stream;
    return cudaSuccess;
}

EXPORTED void** __cudaRegisterFatBinary(void*) {
    static void* handle;
    return &handle;
}

EXPORTED cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
    return cudaSuccess;
}

EXPORTED cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
    std::memset(found, 0, sizeof *found);
    found->numRegs = 32;
    found->maxThreadsPerBlock = 1024;
    found->ptxVersion = found->binaryVersion = compiled_for();
    found->maxDynamicSharedSizeBytes = 48 << 10;
    return cudaSuccess;
}

EXPORTED cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
    *blocks = 4;
    return cudaSuccess;
}

EXPORTED cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t,
                                                                            unsigned) {
    *blocks = 4;
    return cudaSuccess;
}

EXPORTED CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
    *blocks = 4;
    return CUDA_SUCCESS;
}
