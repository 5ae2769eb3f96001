// The compiled part of the `cpu` backend, seen from Python as longspan.kernels.cpu._native.
//
// C++17 and nanobind only: no torch headers, so that one build serves every version of torch. Tensors
// come as addresses and strides; longspan/kernels/cpu/request.py, which writes them down, keeps the
// tensors alive and checks their dtypes.

#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "parallel.h"
#include "problem.h"

// __builtin_cpu_supports() asks the processor and the operating system: a set is reported only when
// its registers are saved across a context switch too.
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define LONGSPAN_X86_PROBE 1
#else
#define LONGSPAN_X86_PROBE 0
#endif

namespace nb = nanobind;

namespace longspan {
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

// The kernels that this machine can run, best first; the last, plain C++, runs anywhere.
std::vector<const Kernels*> all_kernels() {
    std::vector<const Kernels*> found;
#if LONGSPAN_X86_PROBE
    __builtin_cpu_init();
    if (has_avx512()) found.push_back(&kAvx512);
    if (has_avx2()) found.push_back(&kAvx2);
#endif
    found.push_back(&kPortable);
    return found;
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const Kernels* kernels : all_kernels()) names.emplace_back(kernels->name);
    return names;
}

const Kernels& kernels_named(const std::string& name) {
    for (const Kernels* kernels : all_kernels())
        if (name.empty() || name == kernels->name) return *kernels;
    throw std::invalid_argument("no instruction set is called " + name + " here");
}

Workspaces& workspaces() {
    static Workspaces kept;
    return kept;
}

// --- reading what Python wrote down ---

template <typename T>
T* address(nb::handle value) {
    return value.is_none() ? nullptr : reinterpret_cast<T*>(nb::cast<uintptr_t>(value));
}

int64_t number(nb::handle value) { return nb::cast<int64_t>(value); }

Vectors vectors(nb::handle value) {
    const nb::tuple t = nb::cast<nb::tuple>(value);
    return {address<float>(t[0]), number(t[1]), number(t[2]), number(t[3]), number(t[4])};
}

template <typename T>
Numbers<T> numbers(nb::handle value) {
    if (value.is_none()) return {nullptr, 0, 0, 0};
    const nb::tuple t = nb::cast<nb::tuple>(value);
    return {address<T>(t[0]), number(t[1]), number(t[2]), number(t[3])};
}

Order order(nb::handle value) {
    const nb::tuple t = nb::cast<nb::tuple>(value);
    return {address<const int64_t>(t[0]), number(t[1]), number(t[2])};
}

// A problem and what its pointers point to.
struct Request {
    Problem problem{};
    std::deque<std::vector<Part>> parts;
    std::deque<std::vector<Documents>> documents;
    std::deque<std::vector<int64_t>> places;
    std::deque<TileList> tiles;
    std::vector<Walk> walks;
};

Part part(Request& request, const nb::tuple& t) {
    Part found{};
    found.keys = order(t[0]);
    found.low = numbers<const int64_t>(t[1]);
    found.high = numbers<const int64_t>(t[2]);
    if (!t[3].is_none()) {
        const nb::tuple allowed = nb::cast<nb::tuple>(t[3]);
        found.allowed = address<const uint8_t>(allowed[0]);
        found.allowed_before = address<const int64_t>(allowed[1]);
        found.allowed_batch = number(allowed[2]);
    }
    std::vector<Documents>& documents = request.documents.emplace_back();
    for (nb::handle entry : t[4]) {
        const nb::tuple d = nb::cast<nb::tuple>(entry);
        documents.push_back({address<const int64_t>(d[0]), address<const int64_t>(d[2]), number(d[1]),
                             number(d[3])});
    }
    found.documents = documents.data();
    found.document_count = static_cast<int64_t>(documents.size());
    if (!t[5].is_none()) {
        const nb::tuple l = nb::cast<nb::tuple>(t[5]);
        TileList& tiles = request.tiles.emplace_back();
        tiles = {address<const int64_t>(l[0]), address<const int64_t>(l[1]),
                 address<const int64_t>(l[2]), address<const int64_t>(l[3]), number(l[4]),
                 number(l[5])};
        found.tiles = &tiles;
    }
    found.active = number(t[6]);
    return found;
}

Term term(const nb::dict& d) {
    Term found{};
    found.kind = static_cast<Kind>(number(d["kind"]));
    found.number = number(d["number"]);
    found.value = numbers<const float>(d["value"]);
    found.value_gradient = numbers<float>(d["value_gradient"]);
    found.normalized = nb::cast<bool>(d["normalized"]);
    found.softness = nb::cast<float>(d["softness"]);
    found.table = address<const float>(d["table"]);
    found.table_gradient = address<float>(d["table_gradient"]);
    found.sum_gradient = address<double>(d["sum_gradient"]);
    const nb::tuple strides = nb::cast<nb::tuple>(d["strides"]);
    found.batch = number(strides[0]);
    found.head = number(strides[1]);
    found.row = number(strides[2]);
    found.key = number(strides[3]);
    found.length = number(d["length"]);
    found.right = number(d["right"]);
    found.content = address<const float>(d["content"]);
    found.position = address<const float>(d["position"]);
    found.content_head = number(d["content_head"]);
    found.position_head = number(d["position_head"]);
    found.content_gradient = address<double>(d["content_gradient"]);
    found.position_gradient = address<double>(d["position_gradient"]);
    return found;
}

void read(Request& request, const nb::dict& d) {
    Problem& problem = request.problem;
    const nb::tuple sizes = nb::cast<nb::tuple>(d["sizes"]);
    problem.batches = number(sizes[0]);
    problem.heads = number(sizes[1]);
    problem.key_heads = number(sizes[2]);
    problem.n = number(sizes[3]);
    problem.m = number(sizes[4]);
    problem.q = vectors(d["q"]);
    problem.k = vectors(d["k"]);
    problem.v = vectors(d["v"]);
    problem.out = vectors(d["out"]);
    problem.limits = numbers<double>(d["limits"]);
    for (nb::handle entry : d["walks"]) {
        const nb::tuple w = nb::cast<nb::tuple>(entry);
        std::vector<int64_t>& place = request.places.emplace_back();
        for (nb::handle h : w[1]) place.push_back(number(h));
        std::vector<Part>& parts = request.parts.emplace_back();
        for (nb::handle p : w[2]) parts.push_back(part(request, nb::cast<nb::tuple>(p)));
        request.walks.push_back(
            {order(w[0]), parts.data(), static_cast<int64_t>(parts.size()), place.data()});
    }
    problem.walks = request.walks.data();
    problem.walk_count = static_cast<int64_t>(request.walks.size());
    problem.merged = nb::cast<bool>(d["merged"]);
    for (nb::handle entry : d["terms"])
        problem.terms[problem.term_count++] = term(nb::cast<nb::dict>(entry));
    problem.alpha = nb::cast<float>(d["alpha"]);
    problem.alphas = address<const float>(d["alphas"]);
    problem.scale = nb::cast<float>(d["scale"]);
    problem.rounding = nb::cast<float>(d["rounding"]);
    problem.dropout = nb::cast<double>(d["dropout"]);
    problem.seed = nb::cast<uint64_t>(d["seed"]);
    problem.fills_rows = nb::cast<bool>(d["fills_rows"]);
    problem.fills_keys = nb::cast<bool>(d["fills_keys"]);
    if (d.contains("grad")) {
        problem.grad = vectors(d["grad"]);
        problem.dq = vectors(d["dq"]);
        problem.dk = vectors(d["dk"]);
        problem.dv = vectors(d["dv"]);
        problem.alpha_gradient = address<double>(d["alpha_gradient"]);
    }
}

// --- what Python calls ---

// Rows of a task: enough tasks for all threads to end together, each long enough to pay for packing.
int64_t rows_at_once(const Problem& problem, int64_t rows, int64_t threads) {
    const int64_t heads = problem.batches * problem.heads;
    const int64_t pieces = (4 * threads + heads - 1) / heads;
    const int64_t each = ((rows + pieces - 1) / pieces + kTile - 1) / kTile * kTile;
    return each < 512 ? 512 : each;
}

void forward(const nb::dict& d, int64_t threads, const std::string& instructions) {
    Request request;
    read(request, d);
    const Problem& problem = request.problem;
    const Kernels& kernels = kernels_named(instructions);
    const nb::gil_scoped_release released;
    // Where there are heads enough, a thread takes one through all walks: the keys that a global
    // token's row reads once more are still near.
    if (problem.batches * problem.key_heads >= 4 * threads) {
        const int64_t each = problem.heads / problem.key_heads;
        share(workspaces(), kernels, threads, problem.batches * problem.key_heads,
              [&](int64_t task, void* w) {
                  const int64_t b = task / problem.key_heads, first = task % problem.key_heads * each;
                  for (int64_t walk = 0; walk < problem.walk_count; walk++)
                      for (int64_t h = first; h < first + each; h++)
                          if (problem.walks[walk].place[h] >= 0)
                              kernels.forward(
                                  problem, {walk, b, h, 0, problem.walks[walk].queries.length}, w);
              });
        return;
    }
    for (int64_t walk = 0; walk < problem.walk_count; walk++) {
        const Walk& own = problem.walks[walk];
        const int64_t rows = own.queries.length, step = rows_at_once(problem, rows, threads);
        std::vector<ForwardTask> tasks;
        for (int64_t b = 0; b < problem.batches; b++)
            for (int64_t h = 0; h < problem.heads; h++)
                for (int64_t first = 0; own.place[h] >= 0 && first < rows; first += step)
                    tasks.push_back({walk, b, h, first, first + step < rows ? first + step : rows});
        share(workspaces(), kernels, threads, static_cast<int64_t>(tasks.size()),
              [&](int64_t task, void* w) { kernels.forward(problem, tasks[task], w); });
    }
}

void backward(const nb::dict& d, int64_t threads, const std::string& instructions, bool join_samples,
              bool join_heads) {
    Request request;
    read(request, d);
    const Problem& problem = request.problem;
    const Kernels& kernels = kernels_named(instructions);
    const nb::gil_scoped_release released;
    std::vector<BackwardTask> tasks;
    const int64_t samples = join_samples ? problem.batches : 1;
    const int64_t heads = join_heads ? problem.key_heads : 1;
    for (int64_t b = 0; b < problem.batches; b += samples)
        for (int64_t h = 0; h < problem.key_heads; h += heads)
            tasks.push_back({b, b + samples, h, h + heads});
    share(workspaces(), kernels, threads, static_cast<int64_t>(tasks.size()),
          [&](int64_t task, void* w) { kernels.backward(problem, tasks[task], w); });
}

constexpr int64_t kRowsAtOnce = 64;

void entmax(uintptr_t x, uintptr_t p, int64_t rows, int64_t length, uintptr_t alphas, int64_t threads,
            const std::string& instructions) {
    const Kernels& kernels = kernels_named(instructions);
    const nb::gil_scoped_release released;
    const int64_t tasks = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
    share(workspaces(), kernels, threads, tasks, [&](int64_t task, void*) {
        const int64_t first = task * kRowsAtOnce;
        const int64_t count = rows - first < kRowsAtOnce ? rows - first : kRowsAtOnce;
        kernels.entmax(reinterpret_cast<const float*>(x) + first * length,
                       reinterpret_cast<float*>(p) + first * length, count, length,
                       reinterpret_cast<const float*>(alphas) + first);
    });
}

void entmax_backward(uintptr_t p, uintptr_t g, uintptr_t dx, uintptr_t dalpha, int64_t rows,
                     int64_t length, uintptr_t alphas, int64_t threads,
                     const std::string& instructions) {
    const Kernels& kernels = kernels_named(instructions);
    const nb::gil_scoped_release released;
    const int64_t tasks = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
    share(workspaces(), kernels, threads, tasks, [&](int64_t task, void*) {
        const int64_t first = task * kRowsAtOnce;
        const int64_t count = rows - first < kRowsAtOnce ? rows - first : kRowsAtOnce;
        double* to_alpha = dalpha == 0 ? nullptr : reinterpret_cast<double*>(dalpha) + first;
        kernels.entmax_backward(reinterpret_cast<const float*>(p) + first * length,
                                reinterpret_cast<const float*>(g) + first * length,
                                reinterpret_cast<float*>(dx) + first * length, to_alpha, count,
                                length, reinterpret_cast<const float*>(alphas) + first);
    });
}

constexpr int64_t kNumbersAtOnce = 1 << 15;

void dropout(uintptr_t x, uintptr_t y, bool bf16, int64_t count, uint32_t limit, float scale,
             uint64_t seed, int64_t threads, const std::string& instructions) {
    const Kernels& kernels = kernels_named(instructions);
    const nb::gil_scoped_release released;
    const int64_t tasks = (count + kNumbersAtOnce - 1) / kNumbersAtOnce;
    share(workspaces(), kernels, threads, tasks, [&](int64_t task, void*) {
        const int64_t first = task * kNumbersAtOnce;
        const int64_t last = count - first < kNumbersAtOnce ? count : first + kNumbersAtOnce;
        kernels.dropout(reinterpret_cast<const void*>(x), reinterpret_cast<void*>(y), bf16, first,
                        last, limit, scale, seed);
    });
}

}  // namespace
}  // namespace longspan

NB_MODULE(_native, m) {
    using namespace nb::literals;
    m.doc() = "The compiled part of longspan's cpu backend.";
    m.def("instruction_sets", &longspan::instruction_sets,
          "The vector instruction sets that this machine can run, best first.");
    m.def("forward", &longspan::forward, "problem"_a, "threads"_a, "instructions"_a);
    m.def("backward", &longspan::backward, "problem"_a, "threads"_a, "instructions"_a,
          "join_samples"_a, "join_heads"_a);
    m.def("entmax", &longspan::entmax, "x"_a, "p"_a, "rows"_a, "length"_a, "alphas"_a, "threads"_a,
          "instructions"_a);
    m.def("entmax_backward", &longspan::entmax_backward, "p"_a, "g"_a, "dx"_a, "dalpha"_a, "rows"_a,
          "length"_a, "alphas"_a, "threads"_a, "instructions"_a);
    m.def("dropout", &longspan::dropout, "x"_a, "y"_a, "bf16"_a, "count"_a, "limit"_a, "scale"_a,
          "seed"_a, "threads"_a, "instructions"_a);
    m.def("release", [] { longspan::workspaces().clear(); }, "Gives working memory back.");
}
