// Dropout of plain numbers: x / (1 - p) where it is kept, 0 elsewhere. The four words of a draw serve
// four neighbours, of the counter (their place / 4, its upper half, 0, 0).

// Numbers of 16 bits, of which float32 has sixteen more.
using vs = uint16_t __attribute__((vector_size(LONGSPAN_WIDTH * 2)));
using vs_loose = uint16_t __attribute__((vector_size(LONGSPAN_WIDTH * 2), aligned(2), may_alias));

LONGSPAN_INLINE vf widened(const uint16_t* x) {
    const vs own = *reinterpret_cast<const vs_loose*>(x);
    return reinterpret_cast<vf>(__builtin_convertvector(own, vu) << 16);
}
LONGSPAN_INLINE vf widened(const float* x) { return load(x); }

// To the nearest, and of two equally near to the even one. NaN that comes from 16 bits stays NaN.
LONGSPAN_INLINE void narrow(uint16_t* to, vf x) {
    const vu bits = reinterpret_cast<vu>(x);
    const vu found = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    *reinterpret_cast<vs_loose*>(to) = __builtin_convertvector(found, vs);
}
LONGSPAN_INLINE void narrow(float* to, vf x) { store(to, x); }

template <typename T>
static void dropped(const T* x, T* y, int64_t first, int64_t last, uint32_t limit, float scale,
                    uint64_t seed) {
    uint32_t words[kDrawn];
    T rest[kWidth] = {}, room[kWidth];
    for (int64_t at = first; at < last; at += kDrawn) {
        draw_run(seed, at, static_cast<uint32_t>(at >> 34), 0, 0, words);
        for (int64_t n = 0; n < kDrawn && at + n < last; n += kWidth) {
            const int64_t left = last - at - n;
            const bool whole = left >= kWidth;
            if (!whole) std::memcpy(rest, x + at + n, left * sizeof(T));
            const vf own = widened(whole ? x + at + n : rest);
            const vu word = reinterpret_cast<const vu_loose&>(words[n]);
            narrow(whole ? y + at + n : room, word >= limit ? own * scale : vf{});
            if (!whole) std::memcpy(y + at + n, room, left * sizeof(T));
        }
    }
}

static void dropout(const void* x, void* y, bool bf16, int64_t first, int64_t last, uint32_t limit,
                    float scale, uint64_t seed) {
    if (bf16)
        return dropped(static_cast<const uint16_t*>(x), static_cast<uint16_t*>(y), first, last,
                       limit, scale, seed);
    dropped(static_cast<const float*>(x), static_cast<float*>(y), first, last, limit, scale, seed);
}
