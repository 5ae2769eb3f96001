// Sparsemax and entmax of plain rows, forward and backward: what ls.entmax and its kin run on.

static float softmax_of_row(const float* x, float* p, int64_t length, float top) {
    vf totals{};
    for (int64_t j = 0; j < length; j += kWidth) {
        const vf value = exp(load_some(x + j, length - j, -INFINITY) - top);
        totals += value;
        store_some(p + j, length - j, value);
    }
    return sum(totals);
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
        if (normalizer.shape == Shape::softmax) {
            const float inverse = 1 / softmax_of_row(x, p, length, top);
            for (int64_t i = 0; i < length; i++) p[i] *= inverse;
            continue;
        }
        Candidates row = {chosen, 0, -1.000001f / normalizer.epsilon, 0};
        row.count = candidates(x, 0, length, top, row.bound, row.values, 0);
        find_limit(normalizer, row, guess);
        guess = row.limit;
        const float inverse = 1 / shares_of(normalizer, row);
        for (int64_t j = 0; j < row.count; j++) row.values[j] *= inverse;
        scatter(x, 0, length, top, row.bound, row.values, 0, p);
    }
    room.release();
}

// p^(2 - alpha), how fast a share grows; `log_p` is 0 where there is none.
LONGSPAN_INLINE vf slope_of(const Normalizer& normalizer, vf p, vf log_p) {
    switch (normalizer.shape) {
        case Shape::softmax: return p;
        case Shape::entmax15: return root(p);
        case Shape::sparsemax: return all(1.f);
        default: return exp(log_p * (1 - normalizer.epsilon));
    }
}

// The gradients that come to the shares that are not 0, together.
LONGSPAN_INLINE void beside_shares(const float* p, const float* g, int64_t length, float* found) {
    int64_t count = 0;
#if LONGSPAN_WIDTH == 16
    for (int64_t j = 0; j < length; j += 16) {
        const __mmask16 real = length - j >= 16 ? 0xffff : (1u << (length - j)) - 1;
        const __mmask16 above = _mm512_mask_cmp_ps_mask(real, _mm512_maskz_loadu_ps(real, p + j),
                                                        _mm512_setzero_ps(), _CMP_GT_OQ);
        _mm512_storeu_ps(found + count,
                         _mm512_maskz_compress_ps(above, _mm512_maskz_loadu_ps(real, g + j)));
        count += __builtin_popcount(above);
    }
#else
    for (int64_t j = 0; j < length; j++) {
        found[count] = g[j];
        count += p[j] > 0;
    }
#endif
}

// Only where a score has a share is there anything to do: the shares, their slopes and logarithms and
// the gradients that come to them stand together, and dx is put back in its places at the end.
static void entmax_backward(const float* p, const float* g, float* dx, double* dalpha, int64_t rows,
                            int64_t length, const float* alphas) {
    Buffer room;
    const int64_t size = up(length, kWidth) + kWidth;
    float* shares = room.room<float>(4 * size);
    float *given = shares + size, *slopes = given + size, *logs = slopes + size;
    for (int64_t r = 0; r < rows; r++, p += length, g += length, dx += length) {
        const Normalizer normalizer = normalizer_of(alphas[r]);
        const float epsilon = alphas[r] - 1;
        if (p[0] != p[0]) {
            for (int64_t j = 0; j < length; j++) dx[j] = NAN;
            if (dalpha != nullptr) dalpha[r] = NAN;
            continue;
        }
        const int64_t count = candidates(p, 0, length, 0, 0, shares, 0);
        beside_shares(p, g, length, given);
        vf weighted{}, total{};
        for (int64_t j = 0; j < count; j += kWidth) {
            const vf own = load(shares + j);
            // Of the softmax kind and of 1.5 and 2 only alpha's gradient asks for logarithms.
            const bool wants_log = dalpha != nullptr || normalizer.shape == Shape::general;
            const vf log_p = wants_log ? log(own) : vf{};
            vf slope = slope_of(normalizer, own, log_p), part = slope * load(given + j);
            if (j + kWidth > count) {
                slope = inside(j, 0, count) ? slope : vf{};
                part = inside(j, 0, count) ? part : vf{};
            }
            weighted += part;
            total += slope;
            store(slopes + j, slope);
            store(logs + j, log_p);
        }
        const float slope_sum = sum(total), mean = slope_sum == 0 ? 0 : sum(weighted) / slope_sum;
        vf alpha{};
        for (int64_t j = 0; j < count; j += kWidth) {
            const vf slope = load(slopes + j), away = load(given + j) - mean;
            store(given + j, slope * away);
            if (dalpha == nullptr) continue;
            vf part = alpha_slope(load(shares + j), slope, load(logs + j), epsilon) * away;
            if (j + kWidth > count) part = inside(j, 0, count) ? part : vf{};
            alpha += part;
        }
        scatter(p, 0, length, 0, 0, given, 0, dx);
        if (dalpha != nullptr) dalpha[r] = sum(alpha);
    }
    room.release();
}
