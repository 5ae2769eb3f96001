// Sparsemax and entmax of plain rows, forward and backward: what ls.entmax and its kin run on.

template <Shape kShape>
static float shares_of_row(const float* x, float* p, int64_t length, float whole, float rest, float epsilon) {
    vf totals{};
    int64_t j = 0;
    for (; j + kWidth <= length; j += kWidth) {
        const vf value = value_of<kShape>(load(x + j) - whole - rest, epsilon).p;
        totals += value;
        store(p + j, value);
    }
    float total = sum(totals);
    if (j < length) {
        float in[kWidth], out[kWidth];
        for (int i = 0; i < kWidth; i++) in[i] = j + i < length ? x[j + i] : -INFINITY;
        store(out, value_of<kShape>(load(in) - whole - rest, epsilon).p);
        for (int i = 0; j + i < length; i++) {
            p[j + i] = out[i];
            total += out[i];
        }
    }
    return total;
}

static void entmax(const float* x, float* p, int64_t rows, int64_t length, const float* alphas) {
    Buffer room;
    float* chosen = room.room<float>(length + 2 * kWidth);
    float guess = 0;
    for (int64_t r = 0; r < rows; r++, x += length, p += length) {
        const Normalizer normalizer = normalizer_of(alphas[r]);
        float top = -INFINITY;
        bool broken = alphas[r] != alphas[r];
        vf tops = all(-INFINITY);
        vi bad{};
        int64_t j = 0;
        for (; j + kWidth <= length; j += kWidth) {
            const vf value = load(x + j);
            bad |= value != value;
            tops = most(tops, value);
        }
        for (int i = 0; i < kWidth; i++) broken |= bad[i] != 0;
        top = largest(tops);
        for (; j < length; j++) {
            broken |= x[j] != x[j];
            top = top < x[j] ? x[j] : top;
        }
        if (broken) {
            for (int64_t i = 0; i < length; i++) p[i] = NAN;
            continue;
        }
        if (top == -INFINITY) {
            std::memset(p, 0, length * sizeof(float));
            continue;
        }
        float total = 0;
        if (normalizer.shape == Shape::softmax) {
            total = shares_of_row<Shape::softmax>(x, p, length, top, 0, 0);
        } else {
            const float floor = top - 1 / normalizer.epsilon;
            const int64_t count = candidates(x, 0, length, top, floor, chosen, 0);
            const float limit = threshold(normalizer, chosen, count, guess);
            guess = limit;
            const float whole = top + limit, rest = limit - (whole - top);
            if (normalizer.shape == Shape::entmax15)
                total = shares_of_row<Shape::entmax15>(x, p, length, whole, rest, 0.5f);
            else if (normalizer.shape == Shape::sparsemax)
                total = shares_of_row<Shape::sparsemax>(x, p, length, whole, rest, 1.f);
            else
                total = shares_of_row<Shape::general>(x, p, length, whole, rest, normalizer.epsilon);
        }
        const float inverse = 1 / total;
        for (int64_t i = 0; i < length; i++) p[i] *= inverse;
    }
    room.release();
}

LONGSPAN_INLINE vf slope_of(const Normalizer& normalizer, vf p) {
    switch (normalizer.shape) {
        case Shape::softmax: return p;
        case Shape::entmax15: {
            return root(p);
        }
        case Shape::sparsemax: return p > 0.f ? all(1.f) : p;
        default: {
            const vf safe = p > 1e-37f ? p : all(1.f);
            return p > 1e-37f ? exp(log(safe) * (1 - normalizer.epsilon)) : p;
        }
    }
}

// p^-eps, without another exponential where the slope p^(1-eps) is at hand.
LONGSPAN_INLINE vf power_of(const Normalizer& normalizer, vf slope, vf p, vf a) {
    return normalizer.shape == Shape::general ? slope / p : exp(a);
}

static void entmax_backward(const float* p, const float* g, float* dx, double* dalpha, int64_t rows,
                            int64_t length, const float* alphas) {
    for (int64_t r = 0; r < rows; r++, p += length, g += length, dx += length) {
        const Normalizer normalizer = normalizer_of(alphas[r]);
        const float epsilon = alphas[r] - 1;
        float tail_p[kWidth], tail_g[kWidth], tail_slope[kWidth];
        const int64_t whole = down(length, kWidth);
        for (int i = 0; i < kWidth; i++) {
            tail_p[i] = whole + i < length ? p[whole + i] : 0;
            tail_g[i] = whole + i < length ? g[whole + i] : 0;
        }
        vf weighted{}, slopes{};
        for (int64_t j = 0; j < length; j += kWidth) {
            const vf own = load(j < whole ? p + j : tail_p), to = load(j < whole ? g + j : tail_g);
            const vf slope = slope_of(normalizer, own);
            weighted += slope * to;
            slopes += slope;
            if (j < whole)
                store(dx + j, slope);
            else
                store(tail_slope, slope);
        }
        const float total = sum(slopes), mean = total == 0 ? 0 : sum(weighted) / total;
        vf alpha{};
        for (int64_t j = 0; j < length; j += kWidth) {
            const vf own = load(j < whole ? p + j : tail_p), to = load(j < whole ? g + j : tail_g);
            const vf slope = load(j < whole ? dx + j : tail_slope), found = slope * (to - mean);
            if (dalpha != nullptr) {
                // e^a is p^-eps, which is slope / p.
                const vf safe = own > 0.f ? own : all(1.f);
                const vf log_p = log(safe), a = log_p * -epsilon;
                alpha += own > 0.f ? -own * log_p * log_p * psi(a, power_of(normalizer, slope, safe, a)) * (to - mean) : vf{};
            }
            if (j < whole)
                store(dx + j, found);
            else
                for (int i = 0; j + i < length; i++) dx[j + i] = found[i];
        }
        if (dalpha != nullptr) dalpha[r] = sum(alpha);
    }
}
