// The compiled part of the `cpu` backend, seen from Python as longspan.kernels.cpu._native.
//
// C++17 and nanobind only: no torch headers, so that one build serves every version of torch.

#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

// __builtin_cpu_supports() asks the processor and the operating system: a set is reported only when
// its registers are saved across a context switch too.
#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
#define LONGSPAN_X86_PROBE 1
#else
#define LONGSPAN_X86_PROBE 0
#endif

namespace nb = nanobind;

namespace {

#if LONGSPAN_X86_PROBE

// The subsets that every server and desktop processor with AVX-512 has had since 2017: 512-bit
// floats (f), bytes and words (bw), shorter vectors (vl), double and quad words (dq).
bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

#endif

// The vector instruction sets that this machine can run, best first. The last is always "portable":
// plain C++ that any processor runs.
std::vector<std::string> instruction_sets() {
    std::vector<std::string> sets;
#if LONGSPAN_X86_PROBE
    __builtin_cpu_init();
    if (has_avx512()) sets.emplace_back("avx512");
    if (has_avx2()) sets.emplace_back("avx2");
#endif
    sets.emplace_back("portable");
    return sets;
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "The compiled part of longspan's cpu backend.";
    m.def("instruction_sets", &instruction_sets,
          "The vector instruction sets that this machine can run, best first.");
}
