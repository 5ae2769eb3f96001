// The forward of a block: its rows' shares, and the values that they collect.

// Softmax of a row whose scores are finished: its shares in place, and their sum.
static float softmax_shares(const Block& block, int64_t r, float* x, float top) {
    vf totals{};
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Span& span = block.span(r, s);
        for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
            const vf p = exp(load(x + c) - top);
            totals += p;
            store(x + c, p);
        }
    }
    return sum(totals);
}

// Softmax of a plain row whose scores are still raw: its shares in place, their sum, and the largest
// score. The scale is taken in on the way to the exponential.
static float plain_shares(const Block& block, int64_t r, float* x, float& top) {
    const float scale = block.problem->scale;
    vf tops = all(-INFINITY), totals{};
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Span& span = block.span(r, s);
        for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
            vf value = load(x + c);
            if (c < span.low || c + kWidth > span.high) {
                value = inside(c, span.low, span.high) ? value : all(-INFINITY);
                store(x + c, value);
            }
            tops = most(tops, value);
        }
    }
    top = top_or_nan(block, r, x, largest(tops)) * scale;
    if (top == -INFINITY) return 0;
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Span& span = block.span(r, s);
        for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
            const vf p = exp_above(rounded(load(x + c) * scale) - top, 0);
            totals += p;
            store(x + c, p);
        }
    }
    return sum(totals);
}

static void forward_block(const Problem& problem, Workspace& w, int64_t walk, int64_t b, int64_t h,
                          int64_t first, int64_t last) {
    Block block = open_block(problem, w, walk, b, h, first, last);
    const int64_t width = padded(problem.v.size);
    const bool fills = problem.fills_rows && walk == 0;
    if (block.segment_count == 0) {
        for (int64_t r = 0; fills && r < block.rows; r++)
            std::memset(problem.out.at(b, h, block.row_of(r)), 0, problem.v.size * sizeof(float));
        return;
    }
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        const int rows = in_place(*segment.panels, problem.v) ? 0 : kValueRows;
        pack(*segment.panels, problem, segment.slot, segment.end(),
             needs(block, segment, false) | rows | kValuesChecked);
    }
    block.finite = !has_broken(block);
    Ahead ahead;
    look_ahead(block, ahead, problem.out, nullptr);
    float* scores = w.scores.room<float>(kBlock * block.stride + kWidth);
    float* outputs = w.outputs.room<float>(kBlock * width);
    uint8_t* seen = nullptr;
    if (!block.finite) {
        seen = w.seen.room<uint8_t>(kBlock * block.stride + kWidth);
        std::memset(seen, 0, kBlock * block.stride);
    }
    const RowsInPlace queries = block_rows(block, problem.q, w.queries);
    meet(block, queries, problem.q.size, false, scores);
    relate(block, queries);
    const Normalizer normalizer = normalizer_of(alpha_of(problem, h));
    const bool several = multiplies(problem);
    float inverse[kBlock];
    double limits[kBlock];
    float guess = 0;
    const bool plain = normalizer.shape == Shape::softmax && is_plain(block);
    for (int64_t r = 0; r < block.rows; r++) {
        float* x = scores + r * block.stride;
        if (plain) {
            float top;
            const float total = plain_shares(block, r, x, top);
            limits[r] = top == -INFINITY ? top : static_cast<double>(top) + std::log(total);
            inverse[r] = top == -INFINITY ? 0 : 1 / total;
            clear_outside(block, r, x, false);
            continue;
        }
        const float top =
            finish_scores(block, r, x, nullptr, seen == nullptr ? nullptr : seen + r * block.stride);
        float total = 0, limit = 0;
        if (top == -INFINITY) {
            for (int64_t s = 0; s < block.segment_count; s++) {
                const Span& span = block.span(r, s);
                for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) store(x + c, vf{});
            }
        } else if (normalizer.shape == Shape::softmax) {
            total = softmax_shares(block, r, x, top);
            limit = std::log(total);
        } else {
            Candidates row = limit_of_row(block, r, x, top, normalizer, guess);
            if (top == top) guess = row.limit;
            limit = row.limit;
            total = shares_of(normalizer, row);
            int64_t count = 0;
            for (int64_t s = 0; s < block.segment_count; s++) {
                const Span& span = block.span(r, s);
                if (span.high <= span.low) continue;
                count = scatter(x, down(span.low, kWidth), up(span.high, kWidth), top, row.bound,
                                row.values, count, x);
            }
            if (total != total) limit = NAN;
        }
        limits[r] = top == -INFINITY ? -INFINITY : static_cast<double>(top) + limit;
        inverse[r] = top == -INFINITY ? 0 : 1 / total;
        if (several) {
            float* kept = w.kept.room<float>(block.columns + kWidth);
            for (int64_t s = 0; s < block.segment_count; s++) {
                const Span& span = block.span(r, s);
                if (span.high <= span.low) continue;
                find_multipliers(block, r, block.segments[s], span, kept);
                for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
                    const vf p = load(x + c);
                    store(x + c, p == 0.f ? p : p * load(kept + c));
                }
            }
        }
        clear_outside(block, r, x, false);
    }
    collect(block, scores, true, outputs, seen);
    for (int64_t r = 0; r < block.rows; r++) {
        const int64_t row = block.row_of(r);
        double& limit = problem.limits.at(b, h, row);
        float* out = problem.out.at(b, h, row);
        const float* y = outputs + r * width;
        if (limits[r] == -INFINITY) {
            if (fills) std::memset(out, 0, problem.v.size * sizeof(float));
            continue;
        }
        if (problem.merged && limit != -INFINITY) {
            // Another walk had pairs of this row: both results, by their shares.
            const double larger = most(limit, limits[r]);
            const double own = std::exp(limits[r] - larger), other = std::exp(limit - larger);
            const float mine = static_cast<float>(own / (own + other)) * inverse[r];
            const float theirs = static_cast<float>(other / (own + other));
            for (int64_t d = 0; d < problem.v.size; d++) out[d] = y[d] * mine + out[d] * theirs;
            limit = larger + std::log(own + other);
            continue;
        }
        for (int64_t d = 0; d < problem.v.size; d++) out[d] = y[d] * inverse[r];
        limit = limits[r];
    }
}

static void forward(const Problem& problem, const ForwardTask& task, void* workspace) {
    Workspace& w = *static_cast<Workspace*>(workspace);
    const int64_t key_head = task.h / (problem.heads / problem.key_heads);
    open_panels(w, problem, task.walk, task.b, key_head, false);
    for (int64_t first = task.first; first < task.last; first += kBlock)
        forward_block(problem, w, task.walk, task.b, task.h, first, task.last);
}
