// NVML: what nvidia-smi and nvidia-ml-py ask.
#include <cstdio>
#include <string>

#include "current_card.h"
#include "exported.h"
#include "holders.h"

namespace {

// Results of nvml.h, which CUDA's packages of headers do not have.
constexpr int SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7;

int card_of(const void* handle) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)) - 1; }

void* handle_of(int card) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(card) + 1); }

std::string uuid_of(int card) {
    const CardId id = card_id(card);
    std::string text = "GPU-";
    for (int i = 0; i < 16; i++) {
        char byte[4];
        std::snprintf(byte, sizeof byte, "%02x", id.bytes[i]);
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += byte;
    }
    return text;
}

struct Memory {
    Bytes total, free, used;
};
struct MemoryV2 {
    unsigned version;
    Bytes total, reserved, free, used;
};
struct ProcessV1 {
    unsigned pid;
    Bytes used;
};
struct Process {
    unsigned pid;
    Bytes used;
    unsigned gpu_instance, compute_instance;
};
constexpr unsigned NO_INSTANCE = ~0u;

void fill(Process& entry, const Holder& holder, Bytes held) {
    entry = {static_cast<unsigned>(holder.pid), held, NO_INSTANCE, NO_INSTANCE};
}

void fill(ProcessV1& entry, const Holder& holder, Bytes held) { entry = {static_cast<unsigned>(holder.pid), held}; }

template <typename Entry>
int processes(const void* handle, unsigned* count, Entry* entries) {
    unsigned found = 0;
    for (const Holder* row = holders(); row != holders() + MOST_HOLDERS; row++) {
        const Bytes held = row->held[card_of(handle)];
        if (!held || !is_alive(*row)) continue;
        if (entries && found < *count) fill(entries[found], *row, held);
        found++;
    }
    const bool fits = found <= *count;
    *count = found;
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

}  // namespace

EXPORTED int nvmlInit_v2() { return SUCCESS; }
EXPORTED int nvmlInitWithFlags(unsigned) { return SUCCESS; }
EXPORTED int nvmlShutdown() { return SUCCESS; }

EXPORTED const char* nvmlErrorString(int result) {
    switch (result) {
        case SUCCESS: return "Success";
        case NOT_SUPPORTED: return "Not Supported";
        case NOT_FOUND: return "Not Found";
        default: return "error of the simulated card";
    }
}

EXPORTED int nvmlSystemGetDriverVersion(char* text, unsigned size) {
    std::snprintf(text, size, "simulated");
    return SUCCESS;
}

EXPORTED int nvmlSystemGetCudaDriverVersion_v2(int* version) {
    *version = DRIVER_VERSION;
    return SUCCESS;
}

EXPORTED int nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

EXPORTED int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = static_cast<unsigned>(settings().count);
    return SUCCESS;
}

EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
    if (index >= static_cast<unsigned>(settings().count)) return INVALID_ARGUMENT;
    *handle = handle_of(static_cast<int>(index));
    return SUCCESS;
}

EXPORTED int nvmlDeviceGetHandleByPciBusId_v2(const char* text, void** handle) {
    for (int card = 0; card < settings().count; card++) {
        char bus[4];
        std::snprintf(bus, sizeof bus, "%02X", 1 + card);
        if (std::string(text).find(std::string(":") + bus + ":") == std::string::npos) continue;
        *handle = handle_of(card);
        return SUCCESS;
    }
    return NOT_FOUND;
}

EXPORTED int nvmlDeviceGetHandleByUUID(const char* text, void** handle) {
    for (int card = 0; card < settings().count; card++)
        if (uuid_of(card) == text) {
            *handle = handle_of(card);
            return SUCCESS;
        }
    return NOT_FOUND;
}

EXPORTED int nvmlDeviceGetUUID(void* handle, char* text, unsigned size) {
    std::snprintf(text, size, "%s", uuid_of(card_of(handle)).c_str());
    return SUCCESS;
}

EXPORTED int nvmlDeviceGetName(void*, char* text, unsigned size) {
    std::snprintf(text, size, "%s", settings().name.c_str());
    return SUCCESS;
}

EXPORTED int nvmlDeviceGetMemoryInfo(void* handle, Memory* found) {
    const Bytes used = used_bytes(card_of(handle));
    *found = {settings().total, settings().total - used, used};
    return SUCCESS;
}

EXPORTED int nvmlDeviceGetMemoryInfo_v2(void* handle, MemoryV2* found) {
    const Bytes used = used_bytes(card_of(handle));
    *found = {found->version, settings().total, 0, settings().total - used, used};
    return SUCCESS;
}

EXPORTED int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, Process* entries) {
    return processes(handle, count, entries);
}

EXPORTED int nvmlDeviceGetComputeRunningProcesses(void* handle, unsigned* count, ProcessV1* entries) {
    return processes(handle, count, entries);
}

EXPORTED int nvmlDeviceGetGraphicsRunningProcesses_v3(void*, unsigned* count, Process*) {
    *count = 0;
    return SUCCESS;
}

EXPORTED int nvmlDeviceGetEccMode(void*, unsigned*, unsigned*) { return NOT_SUPPORTED; }
EXPORTED int nvmlDeviceGetMigMode(void*, unsigned*, unsigned*) { return NOT_SUPPORTED; }
EXPORTED int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int*) { return NOT_SUPPORTED; }
EXPORTED int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return NOT_SUPPORTED; }
