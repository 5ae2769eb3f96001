// What a kernel is asked for: pointers into tensors, and a layout. Filled by native.cpp, read by the
// kernels, which are compiled once for each instruction set: plain structs, no templates that two
// of them could share.

#pragma once

#include <cstdint>

// Never a function of its own, which the linker might take from the wrong instruction set.
#define LONGSPAN_HERE inline __attribute__((always_inline))

namespace longspan {

// Queries of a block, and keys of a panel. A tile list has tiles of 64 x 64, which both divide.
constexpr int64_t kBlock = 32;
constexpr int64_t kPanel = 32;
constexpr int64_t kTile = 64;
constexpr int kMostTerms = 16;

// Vectors (B, H, N, D) by element strides; the last dim is contiguous.
struct Vectors {
    float* data;
    int64_t batch, head, row;
    int64_t size;

    LONGSPAN_HERE float* at(int64_t b, int64_t h, int64_t r) const {
        return data + b * batch + h * head + r * row;
    }
};

// Numbers (B|1, H|1, N|1) by element strides, 0 where a dim is shared.
template <typename T>
struct Numbers {
    T* data;
    int64_t batch, head, row;

    LONGSPAN_HERE T& at(int64_t b, int64_t h, int64_t r) const {
        return data[b * batch + h * head + r * row];
    }
};

// An order of queries or keys; a null index is the identity.
struct Order {
    const int64_t* index;
    int64_t batch;
    int64_t length;

    LONGSPAN_HERE int64_t at(int64_t b, int64_t place) const {
        return index == nullptr ? place : index[b * batch + place];
    }
};

struct Documents {
    const int64_t *rows, *keys;
    int64_t rows_batch, keys_batch;
};

// A list of tiles: those of tile row t are [start[t], start[t + 1]).
struct TileList {
    const int64_t *start, *column, *mask, *words;
    int64_t mask_batch, mask_head;
};

struct Part {
    Order keys;
    Numbers<const int64_t> low, high;
    // Which keys count, and how many do before each: null when all do.
    const uint8_t* allowed;
    const int64_t* allowed_before;
    int64_t allowed_batch;
    const Documents* documents;
    int64_t document_count;
    const TileList* tiles;
    int64_t active;
};

// `place[h]` is where head h stands among the walk's own heads, -1 when the walk is not for it.
struct Walk {
    Order queries;
    const Part* parts;
    int64_t part_count;
    const int64_t* place;
};

enum class Kind : int64_t {
    bell_bias,
    bell_score,
    bell_weight,
    ramp,
    bias,
    distance,
    alibi,
    relative,
};

struct Term {
    Kind kind;
    int64_t number;
    // bell: variance; ramp: span.
    Numbers<const float> value;
    Numbers<float> value_gradient;
    bool normalized;
    float softness;
    // bias: a tensor in float32 with strides; distance: a table (H|1, L); alibi: slopes (H|1,). The
    // gradient of a large bias is summed in float32, that of a smaller one and the others' in float64.
    const float* table;
    float* table_gradient;
    double* sum_gradient;
    int64_t batch, head, row, key;
    int64_t length, right;
    // relative: `table` has the encodings (H|1, L, D); these are biases (H|1, D), null for none.
    const float *content, *position;
    int64_t content_head, position_head;
    double *content_gradient, *position_gradient;
};

struct Problem {
    int64_t batches, heads, key_heads, n, m;
    Vectors q, k, v, out;
    Numbers<double> limits;
    const Walk* walks;
    int64_t walk_count;
    bool merged;
    Term terms[kMostTerms];
    int64_t term_count;
    // One order for all heads, or one for each.
    float alpha;
    const float* alphas;
    float scale;
    // Of the output: the distance from 1 to the next number of its dtype.
    float rounding;
    double dropout;
    uint64_t seed;
    // Do the first walk's rows, and its first order of keys, cover everything? Then they write where
    // others add, and nobody has to clear the results before.
    bool fills_rows, fills_keys;
    // Of the backward only.
    Vectors grad, dq, dk, dv;
    double* alpha_gradient;

    // The term of relative positions, null where there is none.
    LONGSPAN_HERE const Term* relative() const {
        for (int64_t t = 0; t < term_count; t++)
            if (terms[t].kind == Kind::relative) return &terms[t];
        return nullptr;
    }
};

// Rows [first, last) of one walk, for one sample and head.
struct ForwardTask {
    int64_t walk, b, h, first, last;
};

// Samples [first, last) and key heads [low, high), whose gradients one thread sums.
struct BackwardTask {
    int64_t first, last, low, high;
};

// The kernels for one instruction set.
struct Kernels {
    const char* name;
    void* (*open)();
    void (*reset)(void*);
    void (*close)(void*);
    void (*forward)(const Problem&, const ForwardTask&, void*);
    void (*backward)(const Problem&, const BackwardTask&, void*);
    void (*entmax)(const float* x, float* p, int64_t rows, int64_t length, const float* alphas);
    void (*entmax_backward)(const float* p, const float* g, float* dx, double* dalpha, int64_t rows,
                            int64_t length, const float* alphas);
    void (*dropout)(const void* x, void* y, bool bf16, int64_t first, int64_t last, uint32_t limit,
                    float scale, uint64_t seed);
};

#if defined(__x86_64__)
extern const Kernels kAvx512;
extern const Kernels kAvx2;
#endif
extern const Kernels kPortable;

}  // namespace longspan
