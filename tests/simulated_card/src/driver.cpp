// The driver: cards, contexts, and virtual memory, which torch's expandable segments are made of.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "current_card.h"
#include "device_memory.h"
#include "exported.h"
#include "holders.h"

namespace {

struct Physical {  // what cuMemCreate makes
    int card;
    Bytes size;
};

CUresult not_supported() { return CUDA_ERROR_NOT_SUPPORTED; }

void* as_pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

EXPORTED cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                      cudaDriverEntryPointQueryResult* result) {
    static void* const self = [] {
        Dl_info here;
        dladdr(reinterpret_cast<void*>(&not_supported), &here);
        return dlopen(here.dli_fname, RTLD_NOLOAD | RTLD_NOW);
    }();
    *function = self ? dlsym(self, name) : nullptr;
    if (!*function) {
        simulated_card_note(name);
        *function = reinterpret_cast<void*>(&not_supported);
    }
    if (result) *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

EXPORTED CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

EXPORTED CUresult cuDriverGetVersion(int* version) {
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetCount(int* count) {
    *count = settings().count;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGet(CUdevice* card, int index) {
    *card = index;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
    *value = card_attribute(which);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDevicePrimaryCtxGetState(CUdevice card, unsigned* flags, int* active) {
    *flags = 0;
    *active = has_context(card);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice card) {
    open_context(card);
    *context = reinterpret_cast<CUcontext>(1);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxGetCurrent(CUcontext* context) {
    *context = reinterpret_cast<CUcontext>(1);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetErrorString(CUresult error, const char** text) {
    *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "error of the simulated card";
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemGetAllocationGranularity(size_t* size, const CUmemAllocationProp*,
                                                CUmemAllocationGranularity_flags) {
    *size = GRANULE;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemAddressReserve(CUdeviceptr* begin, size_t size, size_t, CUdeviceptr, unsigned long long) {
    void* const found = reserve_addresses(size);
    *begin = reinterpret_cast<CUdeviceptr>(found);
    return found ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORTED CUresult cuMemAddressFree(CUdeviceptr begin, size_t size) {
    drop_addresses(as_pointer(begin), size);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* wanted,
                              unsigned long long) {
    const int card = wanted->location.id;
    if (!take(card, size)) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = reinterpret_cast<CUmemGenericAllocationHandle>(new Physical{card, size});
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    auto* const made = reinterpret_cast<Physical*>(handle);
    give_back(made->card, made->size);
    delete made;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemMap(CUdeviceptr begin, size_t size, size_t, CUmemGenericAllocationHandle handle,
                           unsigned long long) {
    map_addresses(as_pointer(begin), size, reinterpret_cast<Physical*>(handle)->card);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemUnmap(CUdeviceptr begin, size_t size) {
    drop_pages(as_pointer(begin), size);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }
