// The runtime's cards: which there are, which is current, what they can do. Figures are those of an RTX 3060 unless
// settings.h has them.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "current_card.h"
#include "exported.h"
#include "holders.h"

namespace {

thread_local int current_ = 0;

// What a multiprocessor has: table "Technical Specifications per Compute Capability" of NVIDIA's CUDA programming guide.
struct Multiprocessor {
    int shared_kib;
    int threads;
};

Multiprocessor multiprocessor(int major, int minor) {
    if (major == 7) return {64, 1024};
    if (major == 9 || major == 10) return {228, 2048};
    if (major == 8 && minor == 0) return {164, 2048};
    return {100, 1536};
}

cudaDeviceProp properties(int card) {
    cudaDeviceProp found;
    std::memset(&found, 0, sizeof found);
    std::snprintf(found.name, sizeof found.name, "%s", settings().name.c_str());
    const CardId id = card_id(card);
    std::memcpy(found.uuid.bytes, id.bytes, sizeof id.bytes);
    found.totalGlobalMem = settings().total;
    found.major = settings().major;
    found.minor = settings().minor;
    found.multiProcessorCount = settings().multiprocessors;
    found.pciBusID = 1 + card;
    found.warpSize = 32;
    found.sharedMemPerBlock = 48 << 10;
    const Multiprocessor each = multiprocessor(found.major, found.minor);
    found.sharedMemPerMultiprocessor = each.shared_kib << 10;
    // From Ampere on the system keeps 1 KiB of what a block could have.
    found.sharedMemPerBlockOptin = (each.shared_kib - (found.major >= 8)) << 10;
    found.reservedSharedMemPerBlock = 1 << 10;
    found.regsPerBlock = found.regsPerMultiprocessor = 65536;
    found.maxThreadsPerBlock = found.maxThreadsDim[0] = found.maxThreadsDim[1] = 1024;
    found.maxThreadsDim[2] = 64;
    found.maxThreadsPerMultiProcessor = each.threads;
    found.maxBlocksPerMultiProcessor = 16;
    found.maxGridSize[0] = 2147483647;
    found.maxGridSize[1] = found.maxGridSize[2] = 65535;
    found.memPitch = 2147483647;
    found.totalConstMem = 65536;
    found.textureAlignment = 512;
    found.texturePitchAlignment = 32;
    found.memoryBusWidth = 192;
    found.l2CacheSize = 2359296;
    found.asyncEngineCount = 2;
    found.canMapHostMemory = found.concurrentKernels = found.unifiedAddressing = 1;
    found.managedMemory = found.cooperativeLaunch = found.memoryPoolsSupported = 1;
    return found;
}

}  // namespace

int current_card() { return current_; }

CardId card_id(int card) {
    CardId id;
    for (int i = 0; i < 16; i++) id.bytes[i] = static_cast<unsigned char>(16 * card + i + 1);
    return id;
}

int card_attribute(int which) {
    const cudaDeviceProp card = properties(0);
    switch (which) {
        case cudaDevAttrMaxThreadsPerBlock: return card.maxThreadsPerBlock;
        case cudaDevAttrMaxBlockDimX: return card.maxThreadsDim[0];
        case cudaDevAttrMaxBlockDimY: return card.maxThreadsDim[1];
        case cudaDevAttrMaxBlockDimZ: return card.maxThreadsDim[2];
        case cudaDevAttrMaxGridDimX: return card.maxGridSize[0];
        case cudaDevAttrMaxGridDimY: return card.maxGridSize[1];
        case cudaDevAttrMaxGridDimZ: return card.maxGridSize[2];
        case cudaDevAttrMaxSharedMemoryPerBlock: return static_cast<int>(card.sharedMemPerBlock);
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return static_cast<int>(card.sharedMemPerBlockOptin);
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return static_cast<int>(card.sharedMemPerMultiprocessor);
        case cudaDevAttrReservedSharedMemoryPerBlock: return static_cast<int>(card.reservedSharedMemPerBlock);
        case cudaDevAttrWarpSize: return card.warpSize;
        case cudaDevAttrMaxRegistersPerBlock: return card.regsPerBlock;
        case cudaDevAttrMaxRegistersPerMultiprocessor: return card.regsPerMultiprocessor;
        case cudaDevAttrClockRate: return 1800000;        // kHz
        case cudaDevAttrMemoryClockRate: return 7500000;  // kHz
        case cudaDevAttrGlobalMemoryBusWidth: return card.memoryBusWidth;
        case cudaDevAttrMultiProcessorCount: return card.multiProcessorCount;
        case cudaDevAttrMaxThreadsPerMultiProcessor: return card.maxThreadsPerMultiProcessor;
        case cudaDevAttrMaxBlocksPerMultiprocessor: return card.maxBlocksPerMultiProcessor;
        case cudaDevAttrL2CacheSize: return card.l2CacheSize;
        case cudaDevAttrComputeCapabilityMajor: return card.major;
        case cudaDevAttrComputeCapabilityMinor: return card.minor;
        case cudaDevAttrTextureAlignment: return static_cast<int>(card.textureAlignment);
        case cudaDevAttrUnifiedAddressing:
        case cudaDevAttrCooperativeLaunch:
        case cudaDevAttrMemoryPoolsSupported: return 1;
        case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: return settings().virtual_memory;
        default: return 0;
    }
}

EXPORTED cudaError_t cudaGetDeviceCount(int* count) {
    *count = settings().count;
    return cudaSuccess;
}

EXPORTED cudaError_t cudaGetDevice(int* card) {
    *card = current_;
    return cudaSuccess;
}

EXPORTED cudaError_t cudaSetDevice(int card) {
    if (card < 0 || card >= settings().count) return cudaErrorInvalidDevice;
    current_ = card;
    open_context(card);
    return cudaSuccess;
}

EXPORTED cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int card) {
    *found = properties(card);
    return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
    *value = card_attribute(which);
    return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int card) {
    std::snprintf(text, static_cast<size_t>(size), "0000:%02X:00.0", 1 + card);
    return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
    *can = 0;
    return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}

EXPORTED cudaError_t cudaDriverGetVersion(int* version) {
    *version = DRIVER_VERSION;
    return cudaSuccess;
}

EXPORTED cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

EXPORTED const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidDevice: return "invalid device ordinal";
        default: return "error of the simulated card";
    }
}

EXPORTED const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
        default: return "cudaErrorUnknown";
    }
}
