// NVRTC: what torch compiles while a program runs (its jiterator) is as empty as every other kernel.
#include <cstddef>
#include <cstdlib>

#include "exported.h"

EXPORTED int nvrtcVersion(int* major, int* minor) {
    *major = DRIVER_VERSION / 1000;
    *minor = DRIVER_VERSION % 1000 / 10;
    return 0;
}

EXPORTED int nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*, const char* const*) {
    *program = std::calloc(1, 1);
    return 0;
}

EXPORTED int nvrtcDestroyProgram(void** program) {
    std::free(*program);
    *program = nullptr;
    return 0;
}

#define COMPILED(kind)                                          \
    EXPORTED int nvrtcGet##kind##Size(void*, std::size_t* size) { \
        *size = 1;                                              \
        return 0;                                               \
    }                                                           \
    EXPORTED int nvrtcGet##kind(void*, char* text) {            \
        *text = 0;                                              \
        return 0;                                               \
    }
COMPILED(PTX)
COMPILED(CUBIN)
COMPILED(ProgramLog)

EXPORTED int nvrtcGetLoweredName(void*, const char*, const char** name) {
    *name = "kernel";
    return 0;
}

EXPORTED const char* nvrtcGetErrorString(int) { return "error of the simulated card"; }
