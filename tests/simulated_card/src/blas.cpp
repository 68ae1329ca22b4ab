// cuBLAS and cuFFT. A handle, and one algorithm without a workspace of its own: torch gives cuBLAS memory from its own
// allocator, and how much of it is decided in torch.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "exported.h"

namespace {

int make(void** handle) {
    *handle = std::calloc(1, 4096);
    return 0;
}

struct Heuristic {  // cublasLtMatmulHeuristicResult_t
    std::uint64_t algorithm[8];
    std::size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

}  // namespace

EXPORTED int cublasCreate_v2(void** handle) { return make(handle); }
EXPORTED int cublasLtMatmulDescCreate(void** made, int, int) { return make(made); }
EXPORTED int cublasLtMatmulPreferenceCreate(void** made) { return make(made); }
EXPORTED int cublasLtMatrixLayoutCreate(void** made, int, std::uint64_t, std::uint64_t, std::int64_t) {
    return make(made);
}

EXPORTED int cublasGetMathMode(void*, int* mode) {
    *mode = 0;
    return 0;
}

EXPORTED int cublasGetPointerMode_v2(void*, int* mode) {
    *mode = 0;
    return 0;
}

EXPORTED std::size_t cublasLtGetVersion() { return 130100; }

EXPORTED int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, Heuristic* found,
                                            int* count) {
    std::memset(found, 0, sizeof *found);
    found->waves = 1;
    *count = 1;
    return 0;
}

EXPORTED int cufftXtMakePlanMany(int, int, std::int64_t*, std::int64_t*, std::int64_t, std::int64_t, int,
                                 std::int64_t*, std::int64_t, std::int64_t, int, std::int64_t, std::size_t* workspace,
                                 int) {
    *workspace = 0;
    return 0;
}
