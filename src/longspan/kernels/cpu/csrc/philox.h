// Dropout's random words: Philox 4x32-10, as in longspan/kernels/philox.py, a vector of counters at once.

using vu = uint32_t __attribute__((vector_size(LONGSPAN_WIDTH * 4)));
using vu_loose = uint32_t __attribute__((vector_size(LONGSPAN_WIDTH * 4), aligned(4), may_alias));

// The four words of each counter.
struct Words {
    vu word[4];
};

// The halves of 64-bit products.
LONGSPAN_INLINE void multiply(vu x, uint32_t y, vu& high, vu& low) {
#if LONGSPAN_WIDTH == 16
    const __m512i own = reinterpret_cast<__m512i>(x), times = _mm512_set1_epi32(static_cast<int>(y));
    const __m512i even = _mm512_mul_epu32(own, times);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(own, 32), times);
    // Each half of the numbers takes its own place, the other half's is swapped in beside it.
    high = reinterpret_cast<vu>(_mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB));
    low = reinterpret_cast<vu>(_mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA));
#elif defined(__AVX2__)
    const __m256i own = reinterpret_cast<__m256i>(x), times = _mm256_set1_epi32(static_cast<int>(y));
    const __m256i even = _mm256_mul_epu32(own, times);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(own, 32), times);
    high = reinterpret_cast<vu>(_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa));
    low = reinterpret_cast<vu>(_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa));
#else
    for (int i = 0; i < kWidth; i++) {
        const uint64_t product = uint64_t{x[i]} * y;
        high[i] = static_cast<uint32_t>(product >> 32);
        low[i] = static_cast<uint32_t>(product);
    }
#endif
}

// Of counters (c0, c1, c2, c3), which differ in c0 alone.
LONGSPAN_INLINE Words philox(uint64_t seed, vu c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    Words now = {{c0, vu{} + c1, vu{} + c2, vu{} + c3}};
    for (int round = 0; round < 10; round++) {
        vu first, second, upper, lower;
        multiply(now.word[0], 0xD2511F53u, first, lower);
        multiply(now.word[2], 0xCD9E8D57u, second, upper);
        now = {{second ^ now.word[1] ^ k0, upper, first ^ now.word[3] ^ k1, lower}};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return now;
}

// How many keys a vector of counters draws for.
constexpr int64_t kDrawn = 4 * kWidth;

// The words of keys [j, j + kDrawn), where 4 divides j. Counters are dealt to lanes in such an order
// that keys come out in theirs where vectors are only merged within 128 bits.
static void draw_run(uint64_t seed, int64_t j, uint32_t i, uint32_t h, uint32_t b, uint32_t* to) {
    const vu lane = reinterpret_cast<vu>(iota());
    const vu place = (lane & 3u) * static_cast<uint32_t>(kWidth / 4) + (lane >> 2);
    const Words drawn = philox(seed, static_cast<uint32_t>(j >> 2) + place, i, h, b);
#if LONGSPAN_WIDTH == 16
    __m512i w[4];
    for (int n = 0; n < 4; n++) w[n] = reinterpret_cast<__m512i>(drawn.word[n]);
    const __m512i low[2] = {_mm512_unpacklo_epi32(w[0], w[1]), _mm512_unpacklo_epi32(w[2], w[3])};
    const __m512i high[2] = {_mm512_unpackhi_epi32(w[0], w[1]), _mm512_unpackhi_epi32(w[2], w[3])};
    _mm512_storeu_si512(to, _mm512_unpacklo_epi64(low[0], low[1]));
    _mm512_storeu_si512(to + kWidth, _mm512_unpackhi_epi64(low[0], low[1]));
    _mm512_storeu_si512(to + 2 * kWidth, _mm512_unpacklo_epi64(high[0], high[1]));
    _mm512_storeu_si512(to + 3 * kWidth, _mm512_unpackhi_epi64(high[0], high[1]));
#else
    for (int g = 0; g < kWidth; g++)
        for (int n = 0; n < 4; n++) to[4 * place[g] + n] = drawn.word[n][g];
#endif
}

// The words of any kWidth keys.
LONGSPAN_INLINE vu draw_each(uint64_t seed, vu j, uint32_t i, uint32_t h, uint32_t b) {
    const Words drawn = philox(seed, j >> 2, i, h, b);
    const vu lane = j & 3u;
    const vu low = lane == 0u ? drawn.word[0] : drawn.word[1];
    const vu high = lane == 2u ? drawn.word[2] : drawn.word[3];
    return lane < 2u ? low : high;
}
