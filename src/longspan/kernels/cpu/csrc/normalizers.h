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

// Copies x - top of the scores above top + bound (and of NaN, which shows in what follows), from
// [low, high) behind `count` others; `found` has room for a whole vector more. Compressing straight
// into memory would be slow on some processors.
LONGSPAN_INLINE int64_t candidates(const float* x, int64_t low, int64_t high, float top, float bound,
                                   float* found, int64_t count) {
#if LONGSPAN_WIDTH == 16
    for (int64_t j = low; j < high; j += 16) {
        const __mmask16 real = high - j >= 16 ? 0xffff : (1u << (high - j)) - 1;
        const __m512 away = _mm512_sub_ps(_mm512_maskz_loadu_ps(real, x + j), _mm512_set1_ps(top));
        const __mmask16 above =
            _mm512_mask_cmp_ps_mask(real, away, _mm512_set1_ps(bound), _CMP_NLE_UQ);
        _mm512_storeu_ps(found + count, _mm512_maskz_compress_ps(above, away));
        count += __builtin_popcount(above);
    }
#else
    for (int64_t j = low; j < high; j++) {
        const float away = x[j] - top;
        found[count] = away;
        count += !(away <= bound);
    }
#endif
    return count;
}

// The way back: what was found for the candidates above `bound`, and 0 for all others.
LONGSPAN_INLINE int64_t scatter(const float* x, int64_t low, int64_t high, float top, float bound,
                                const float* found, int64_t count, float* to) {
#if LONGSPAN_WIDTH == 16
    for (int64_t j = low; j < high; j += 16) {
        const __mmask16 real = high - j >= 16 ? 0xffff : (1u << (high - j)) - 1;
        const __m512 away = _mm512_sub_ps(_mm512_maskz_loadu_ps(real, x + j), _mm512_set1_ps(top));
        const __mmask16 above =
            _mm512_mask_cmp_ps_mask(real, away, _mm512_set1_ps(bound), _CMP_NLE_UQ);
        _mm512_mask_storeu_ps(to + j, real,
                              _mm512_maskz_expand_ps(above, _mm512_loadu_ps(found + count)));
        count += __builtin_popcount(above);
    }
#else
    for (int64_t j = low; j < high; j++) {
        const bool above = !(x[j] - top <= bound);
        to[j] = above ? found[count] : 0;
        count += above;
    }
#endif
    return count;
}

// The candidates of one row, x - top for those that can still have a share, and the root of phi for
// them. `values` has room for a whole vector at its end.
struct Candidates {
    float* values;
    int64_t count;
    float bound, limit;
};

// Newton from a guess (the row before): wherever it starts, every later step comes from the left. Each
// step so tells of more scores that they have no share, and they are left out of the next.
template <Shape kShape>
static void search(Candidates& row, float epsilon, float guess) {
    float low = 0;
    float high = -std::expm1(-epsilon * std::log(static_cast<float>(row.count))) / epsilon;
    float width = high - low, point = least(most(guess, low), high);
    // Newton squares its error where phi is smooth: after so small a step there is nothing left of
    // it. Above alpha = 1.5 phi has kinks, and the step itself has to vanish.
    const float enough = epsilon <= 0.5f ? 1e-4f : 1e-6f;
    for (int step = 0; step < 48; step++) {
        const Newton found = newton<kShape>(row.values, row.count, point, epsilon);
        if (found.phi < 0) high = least(high, point);
        low = most(low, least(found.next, high));
        // A little lower than it need be: rounding must not leave out a score that has a share.
        const float bound = low - 1.000001f / epsilon;
        if ((step == 0 || kShape == Shape::general) && bound > row.bound) {
            row.bound = bound;
            row.count = candidates(row.values, 0, row.count, 0, bound, row.values, 0);
        }
        const float now = high - low;
        const bool done = std::fabs(found.next - point) <= enough;
        if (done) break;
        point = now <= width / 2 ? low : low + now / 2;
        width = now;
    }
    row.limit = low;
}

LONGSPAN_INLINE void find_limit(const Normalizer& normalizer, Candidates& row, float guess) {
    switch (normalizer.shape) {
        case Shape::entmax15: return search<Shape::entmax15>(row, 0.5f, guess);
        case Shape::sparsemax: return search<Shape::sparsemax>(row, 1.f, guess);
        default: return search<Shape::general>(row, normalizer.epsilon, guess);
    }
}

// Shares in place of the candidates. Returns their sum.
template <Shape kShape>
static float shares_of(Candidates& row, float epsilon) {
    vf totals{};
    for (int64_t j = 0; j < row.count; j += kWidth) {
        vf p = value_of<kShape>(load(row.values + j) - row.limit, epsilon).p;
        if (j + kWidth > row.count) p = inside(j, 0, row.count) ? p : vf{};
        totals += p;
        store(row.values + j, p);
    }
    return sum(totals);
}

LONGSPAN_INLINE float shares_of(const Normalizer& normalizer, Candidates& row) {
    switch (normalizer.shape) {
        case Shape::entmax15: return shares_of<Shape::entmax15>(row, 0.5f);
        case Shape::sparsemax: return shares_of<Shape::sparsemax>(row, 1.f);
        default: return shares_of<Shape::general>(row, normalizer.epsilon);
    }
}

// 2 psi(a) = 2 (e^a - 1 - a)/a^2 by its series, for 0 <= a <= 1, where the difference would lose digits.
LONGSPAN_INLINE vf psi_series(vf a) {
    vf series = 1.f + a * (1.f / 11);
    for (int k = 10; k >= 3; k--) series = 1.f + a * (1.f / k) * series;
    return series;
}

// log p of a share p = e(y), 0 where there is none.
LONGSPAN_INLINE vf log_share(vf y, vf p, float epsilon) {
    const vi some = p > 0.f;
    const vf safe = some ? y : vf{};
    return epsilon < 1e-7f ? safe : log_one_plus(safe * epsilon) * (1 / epsilon);
}

// The part of the gradient of alpha that one pair has, before its mean is taken off: -p l^2 psi(a)
// with l = log p and a = -eps l. p e^a is the slope, so that no power and no division is left.
LONGSPAN_INLINE vf alpha_slope(vf p, vf slope, vf log_p, float epsilon) {
    const vf a = log_p * -epsilon;
    const vf near = 0.5f * p * (log_p * log_p) * psi_series(a);
    const vf far = (slope - p - a * p) * (1 / (epsilon * epsilon));
    return -(a > 1.f ? far : near);
}
