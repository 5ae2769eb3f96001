// Softmax, sparsemax and entmax of one row: p = e(s - T) with e(y) = [1 + eps y]+ ^ (1/eps), and
// exp(y) at eps = 0. The mathematics is in longspan/normalizers/tsallis.py; names are the same.

enum class Shape { softmax, entmax15, sparsemax, general };

struct Normalizer {
    Shape shape;
    float epsilon;
};

LONGSPAN_INLINE Normalizer normalizer_of(float alpha) {
    const float epsilon = alpha - 1;
    if (epsilon < 1e-7f) return {Shape::softmax, 0};
    if (alpha == 1.5f) return {Shape::entmax15, 0.5f};
    if (alpha == 2.f) return {Shape::sparsemax, 1};
    return {Shape::general, epsilon};
}

// ln(1 + u), exact also where u is small: what rounding 1 + u lost counts as much as u itself there.
LONGSPAN_INLINE vf log_one_plus(vf u) {
    const vf w = u + 1.f;
    return log(w) + (u - (w - 1.f));
}

struct Value {
    vf p, slope;
};

// e(y), and p^(2 - alpha): how fast e grows there.
template <Shape kShape>
LONGSPAN_INLINE Value value_of(vf y, float epsilon) {
    if constexpr (kShape == Shape::softmax) {
        const vf p = exp(y);
        return {p, p};
    } else if constexpr (kShape == Shape::entmax15) {
        vf d = 1.f + y * 0.5f;
        d = d < 0.f ? vf{} : d;
        return {d * d, d};
    } else if constexpr (kShape == Shape::sparsemax) {
        vf d = 1.f + y;
        d = d < 0.f ? vf{} : d;
        return {d, d > 0.f ? all(1.f) : d};
    } else {
        const vf u = y * epsilon, base = u + 1.f;
        const vi outside = base <= 1e-30f;
        const vf safe = outside ? vf{} : u;
        const vf p = outside ? vf{} : exp(log_one_plus(safe) * (1 / epsilon));
        return {p, outside ? vf{} : p / (safe + 1.f)};
    }
}

struct Newton {
    float next, phi;
};

// One step on phi(t) = (S^eps - 1)/eps with S = sum of e(x - t).
template <Shape kShape>
LONGSPAN_INLINE Newton newton(const float* x, int64_t count, float t, float epsilon) {
    vf totals{}, slopes{};
    int64_t j = 0;
    for (; j + kWidth <= count; j += kWidth) {
        const Value value = value_of<kShape>(load(x + j) - t, epsilon);
        totals += value.p;
        slopes += value.slope;
    }
    if (j < count) {
        const vi real = inside(j, 0, count);
        const Value value = value_of<kShape>(load(x + j) - t, epsilon);
        totals += real ? value.p : vf{};
        slopes += real ? value.slope : vf{};
    }
    const float total = sum(totals), slope = sum(slopes);
    if (!(total > 0) || !(slope > 0)) return {t, total > 0 ? total - 1 : -1 / epsilon};
    if constexpr (kShape == Shape::sparsemax) return {t + (total - 1) / slope, total - 1};
    if constexpr (kShape == Shape::entmax15) {
        const float root = std::sqrt(total), phi = 2 * (root - 1);
        return {t + phi * root / slope, phi};
    }
    const float grown = std::log(total), phi = std::expm1(epsilon * grown) / epsilon;
    return {t + phi * std::exp((1 - epsilon) * grown) / slope, phi};
}

// The root of phi for a row whose largest score is 0; `x` has room for a whole vector at its end.
// Newton from a guess (the row before): wherever it starts, every later step comes from the left.
template <Shape kShape>
static float search(const float* x, int64_t count, float epsilon, float guess) {
    float low = 0;
    float high = -std::expm1(-epsilon * std::log(static_cast<float>(count))) / epsilon;
    float width = high - low, point = least(most(guess, low), high);
    // Newton squares its error where phi is smooth: after so small a step there is nothing left of
    // it. Above alpha = 1.5 phi has kinks, and the step itself has to vanish.
    const float enough = epsilon <= 0.5f ? 1e-4f : 1e-6f;
    for (int step = 0; step < 48; step++) {
        const Newton found = newton<kShape>(x, count, point, epsilon);
        if (found.phi < 0) high = least(high, point);
        low = most(low, least(found.next, high));
        const float now = high - low;
        const bool done = std::fabs(found.next - point) <= enough;
        if (done) break;
        point = now <= width / 2 ? low : low + now / 2;
        width = now;
    }
    return low;
}

// Copies x - top of the scores that can have a share, from [low, high) behind `count` others.
LONGSPAN_INLINE int64_t candidates(const float* x, int64_t low, int64_t high, float top,
                                   float floor, float* found, int64_t count) {
#if LONGSPAN_WIDTH == 16 && defined(__AVX512F__)
    for (int64_t j = low; j < high; j += 16) {
        const __mmask16 real = high - j >= 16 ? 0xffff : (1u << (high - j)) - 1;
        const __m512 value = _mm512_maskz_loadu_ps(real, x + j);
        const __mmask16 above =
            _mm512_mask_cmp_ps_mask(real, value, _mm512_set1_ps(floor), _CMP_GT_OQ);
        _mm512_mask_compressstoreu_ps(found + count, above,
                                      _mm512_sub_ps(value, _mm512_set1_ps(top)));
        count += __builtin_popcount(above);
    }
#else
    for (int64_t j = low; j < high; j++) {
        found[count] = x[j] - top;
        count += x[j] > floor;
    }
#endif
    return count;
}

// T of a row's candidates, relative to its largest score.
LONGSPAN_INLINE float threshold(const Normalizer& normalizer, const float* x, int64_t count,
                                float guess) {
    switch (normalizer.shape) {
        case Shape::entmax15: return search<Shape::entmax15>(x, count, 0.5f, guess);
        case Shape::sparsemax: return search<Shape::sparsemax>(x, count, 1.f, guess);
        default: return search<Shape::general>(x, count, normalizer.epsilon, guess);
    }
}

// psi(a) = (e^a - 1 - a)/a^2, given e^a; by its series where the difference would lose digits.
LONGSPAN_INLINE vf psi(vf a, vf power) {
    vf series = 1.f + a * (1.f / 11);
    for (int k = 10; k >= 3; k--) series = 1.f + a * (1.f / k) * series;
    const vi far = a > 1.f;
    const vf safe = far ? a : all(1.f);
    return far ? (power - 1.f - safe) / (safe * safe) : 0.5f * series;
}

// The part of the gradient of alpha that one pair has, before its mean is taken off: -p l^2 psi.
LONGSPAN_INLINE vf alpha_slope(vf y, vf p, float epsilon) {
    const vi some = p > 0.f;
    const vf u = some ? y * epsilon : vf{};
    const vf log_p = epsilon < 1e-7f ? (some ? y : vf{}) : log_one_plus(u) / most(epsilon, 1e-7f);
    const vf a = log_p * -epsilon;
    return some ? -p * log_p * log_p * psi(a, 1.f / (1.f + u)) : vf{};
}
