// Vectors of LONGSPAN_WIDTH floats, with the compiler's own vector types: one source for every
// instruction set. Included once in each kernels_*.cpp, inside its namespace.

using vf = float __attribute__((vector_size(LONGSPAN_WIDTH * 4)));
using vi = int32_t __attribute__((vector_size(LONGSPAN_WIDTH * 4)));
using vf_loose = float __attribute__((vector_size(LONGSPAN_WIDTH * 4), aligned(4), may_alias));
using vi_loose = int32_t __attribute__((vector_size(LONGSPAN_WIDTH * 4), aligned(4), may_alias));

constexpr int kWidth = LONGSPAN_WIDTH;

#define LONGSPAN_INLINE static inline __attribute__((always_inline))

template <typename T>
LONGSPAN_INLINE T least(T a, T b) {
    return b < a ? b : a;
}
template <typename T>
LONGSPAN_INLINE T most(T a, T b) {
    return a < b ? b : a;
}
LONGSPAN_INLINE int64_t down(int64_t x, int64_t step) { return x / step * step; }
LONGSPAN_INLINE int64_t up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

LONGSPAN_INLINE vf load(const float* p) { return *reinterpret_cast<const vf_loose*>(p); }
LONGSPAN_INLINE void store(float* p, vf x) { *reinterpret_cast<vf_loose*>(p) = x; }
LONGSPAN_INLINE vi load(const int32_t* p) { return *reinterpret_cast<const vi_loose*>(p); }
// Of a row's end, where fewer than a vector's numbers may be left.
LONGSPAN_INLINE vf load_some(const float* p, int64_t left, float other) {
    if (left >= kWidth) return load(p);
    vf x;
    for (int i = 0; i < kWidth; i++) x[i] = i < left ? p[i] : other;
    return x;
}
LONGSPAN_INLINE void store_some(float* p, int64_t left, vf x) {
    if (left >= kWidth) return store(p, x);
    for (int i = 0; i < left; i++) p[i] = x[i];
}
LONGSPAN_INLINE vf all(float x) { return x - vf{}; }
LONGSPAN_INLINE vi all(int32_t x) { return x - vi{}; }
// Where either is NaN, a: what one instruction of x86 says of its operands turned round.
#if LONGSPAN_WIDTH == 16
LONGSPAN_INLINE vf most(vf a, vf b) { return _mm512_max_ps(b, a); }
LONGSPAN_INLINE vf least(vf a, vf b) { return _mm512_min_ps(b, a); }
#else
LONGSPAN_INLINE vf most(vf a, vf b) { return a < b ? b : a; }
LONGSPAN_INLINE vf least(vf a, vf b) { return b < a ? b : a; }
#endif

LONGSPAN_INLINE vi iota() {
    vi x;
    for (int i = 0; i < kWidth; i++) x[i] = i;
    return x;
}

// Lanes that lie in [low, high), of a vector that starts at `at`.
LONGSPAN_INLINE vi inside(int64_t at, int64_t low, int64_t high) {
    const vi lane = iota();
    return (lane >= all(static_cast<int32_t>(most<int64_t>(low - at, -1)))) &
           (lane < all(static_cast<int32_t>(least<int64_t>(high - at, kWidth))));
}

// A product that stays the number that float32 has of it: the compiler may otherwise run it into the
// sum that it comes to, here and not there.
LONGSPAN_INLINE vf rounded(vf x) {
#if LONGSPAN_WIDTH == 16
    asm("" : "+v"(x));
#elif defined(__x86_64__)
    asm("" : "+x"(x));
#elif defined(__aarch64__)
    asm("" : "+w"(x));
#else
    asm("" : "+m"(x));
#endif
    return x;
}

// By halves, in one fixed order.
LONGSPAN_INLINE float sum(vf x) {
#if LONGSPAN_WIDTH == 16
    return _mm512_reduce_add_ps(x);
#else
    float parts[kWidth];
    store(parts, x);
    for (int half = kWidth / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) parts[i] += parts[i + half];
    return parts[0];
#endif
}
LONGSPAN_INLINE float largest(vf x) {
    float top = x[0];
    for (int i = 1; i < kWidth; i++) top = top < x[i] ? x[i] : top;
    return top;
}

LONGSPAN_INLINE vf root(vf x) {
    vf y;
    for (int i = 0; i < kWidth; i++) y[i] = __builtin_sqrtf(x[i]);
    return y;
}

// e^x, within two ulp; 0 below -87.3 (or where float32 ends), and NaN stays.
LONGSPAN_INLINE vf exp(vf x) {
#if LONGSPAN_WIDTH == 16
    // One instruction each rounds and scales by a power of two, down to 0.
    const vf bounded = least(most(x, all(-110.f)), all(88.f));
    const vf n = _mm512_roundscale_ps(bounded * 1.44269504f, 0);
#else
    const vf lowest = all(-87.33f), bounded = least(most(x, lowest), all(88.f));
    const vf shift = all(12582912.f);
    const vf n = (bounded * 1.44269504f + shift) - shift;
#endif
    vf r = bounded - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + (r + 1.f);
#if LONGSPAN_WIDTH == 16
    return _mm512_scalef_ps(p, n);
#else
    const vi power = (__builtin_convertvector(n, vi) + 127) << 23;
    p = p * reinterpret_cast<vf>(power);
    return x < lowest ? vf{} : p;
#endif
}

// 2^x, within two ulp, for x <= 127; 0 where float32 ends, and NaN stays. Cheaper than e^x, where
// the caller can take log2(e) into what x is made of.
LONGSPAN_INLINE vf exp2(vf x) {
#if LONGSPAN_WIDTH == 16
    const vf bounded = most(x, all(-160.f)), n = _mm512_roundscale_ps(bounded, 0);
#else
    const vf lowest = all(-126.f), bounded = most(x, lowest);
    const vf shift = all(12582912.f), n = (bounded + shift) - shift;
#endif
    const vf r = bounded - n;
    vf p = all(1.5353361960e-4f);
    p = p * r + 1.3398875017e-3f;
    p = p * r + 9.6184369177e-3f;
    p = p * r + 5.5503323674e-2f;
    p = p * r + 2.4022647738e-1f;
    p = p * r + 6.9314718246e-1f;
    p = p * r + 1.f;
#if LONGSPAN_WIDTH == 16
    return _mm512_scalef_ps(p, n);
#else
    const vi power = (__builtin_convertvector(n, vi) + 127) << 23;
    p = p * reinterpret_cast<vf>(power);
    return x < lowest ? vf{} : p;
#endif
}

// ln x for positive normal x, within two ulp.
LONGSPAN_INLINE vf log(vf x) {
    const vi bits = reinterpret_cast<vi>(x);
    vi exponent = ((bits >> 23) & 255) - 126;
    vf m = reinterpret_cast<vf>((bits & 0x007fffff) | 0x3f000000);  // in [0.5, 1)
    const vi small = m < all(0.707106781f);
    exponent = exponent + (small ? all(int32_t{-1}) : vi{});
    m = small ? m + m - 1.f : m - 1.f;
    const vf z = m * m, e = __builtin_convertvector(exponent, vf);
    vf p = all(7.0376836292e-2f);
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    vf y = m * z * p;
    y = y + e * -2.12194440e-4f;
    y = y - 0.5f * z;
    return m + y + e * 0.693359375f;
}
