// Weights on one row of a block: what they do to its scores, and what multiplies its probabilities.

LONGSPAN_INLINE bool acts(const Segment& segment, const Term& term) {
    return (segment.part->active >> term.number) & 1;
}

LONGSPAN_INLINE vf distance_of(const float* positions, int64_t c, float i) {
    return load(positions + c) - i;
}

LONGSPAN_INLINE vf log_bell(const Term& term, vf distance, float variance) {
    vf curve = distance * distance * (-0.5f / variance);
    if (term.normalized) curve = curve - 0.5f * std::log(6.283185307f * variance);
    return curve;
}

LONGSPAN_INLINE vf ramp(const Term& term, vf distance, float span) {
    const vf away = distance < 0.f ? -distance : distance;
    const vf m = (term.softness - away + span) / term.softness;
    return least(most(m, all(1.17549435e-38f)), all(1.f));
}

LONGSPAN_INLINE int64_t table_place(const Term& term, int64_t offset) {
    const int64_t place = offset + (term.length - 1 - term.right);
    return least(most<int64_t>(place, 0), term.length - 1);
}

constexpr float kLowest = -3.4028234664e38f;

// Scores after one term, for the row's span in one segment.
static void apply(const Block& block, const Term& term, int64_t r, const Segment& segment,
                  const Span& span, float* x, int32_t* alive) {
    const float* positions = segment.panels->positions.room<float>(0) + segment.slot - segment.column;
    const int64_t row = block.row_of(r);
    const float i = block.position_of(r);
    const int64_t from = down(span.low, kWidth);
    switch (term.kind) {
        case Kind::bell_bias: {
            const float variance = term.value.at(block.b, block.h, row);
            const float factor = -0.5f / variance;
            const float shift = term.normalized ? -0.5f * std::log(6.283185307f * variance) : 0.f;
            for (int64_t c = from; c < span.high; c += kWidth) {
                const vf d = distance_of(positions, c, i);
                store(x + c, load(x + c) + (d * d * factor + shift));
            }
            break;
        }
        case Kind::bell_score: {
            const float variance = term.value.at(block.b, block.h, row);
            for (int64_t c = from; c < span.high; c += kWidth) {
                const vf d = distance_of(positions, c, i);
                store(x + c, load(x + c) * exp(log_bell(term, d, variance)));
            }
            break;
        }
        case Kind::bell_weight: break;
        case Kind::relative: {
            const float* added = block.related + r * block.stride;
            for (int64_t c = from; c < span.high; c += kWidth)
                store(x + c, load(x + c) + block.problem->scale * load(added + c));
            break;
        }
        case Kind::ramp: {
            const float own = term.value.at(block.b, block.h, row);
            for (int64_t c = from; c < span.high; c += kWidth) {
                const vf m = ramp(term, distance_of(positions, c, i), own);
                store(x + c, own == own ? load(x + c) + log(m) : all(own));
            }
            break;
        }
        case Kind::bias: {
            const float* bias = term.table + block.b * term.batch + block.h * term.head + row * term.row;
            for (int64_t c = span.low; c < span.high; c++) {
                const float own = bias[static_cast<int64_t>(positions[c]) * term.key];
                const bool gone = own <= kLowest;
                x[c] += gone ? 0.f : own;
                if (gone) alive[c] = 0;
            }
            break;
        }
        case Kind::distance: {
            const float* table = term.table + block.h * term.head;
            for (int64_t c = span.low; c < span.high; c++)
                x[c] += table[table_place(term, static_cast<int64_t>(positions[c] - i))];
            break;
        }
        case Kind::alibi: {
            const float slope = term.table[block.h * term.head];
            for (int64_t c = from; c < span.high; c += kWidth) {
                const vf d = distance_of(positions, c, i);
                store(x + c, load(x + c) - slope * (d < 0.f ? -d : d));
            }
            break;
        }
    }
}

// What multiplies the probabilities of a row: factors of weights, and dropout.
LONGSPAN_INLINE bool multiplies(const Problem& problem) {
    bool found = problem.dropout > 0;
    for (int64_t t = 0; t < problem.term_count; t++)
        found |= problem.terms[t].kind == Kind::bell_weight;
    return found;
}

// Takes dropout into what multiplies a row's probabilities.
static void drop(const Block& block, int64_t row, const Segment& segment, const Span& span, float* kept) {
    const Problem& problem = *block.problem;
    const uint32_t limit = static_cast<uint32_t>(problem.dropout * 4294967296.0);
    const vf scale = all(1 / (1 - static_cast<float>(problem.dropout)));
    const uint32_t i = static_cast<uint32_t>(row + problem.m - problem.n);
    const uint32_t h = static_cast<uint32_t>(block.h), b = static_cast<uint32_t>(block.b);
    int64_t c = down(span.low, kWidth);
    if (segment.panels->order.index == nullptr && segment.thin == 0) {
        // Keys in their order share draws, four of them each.
        uint32_t words[kDrawn];
        while (c < span.high) {
            draw_run(problem.seed, c + segment.slot - segment.column, i, h, b, words);
            for (int64_t n = 0; n < kDrawn && c < span.high; n += kWidth, c += kWidth) {
                const vu own = reinterpret_cast<const vu_loose&>(words[n]);
                store(kept + c, own >= limit ? load(kept + c) * scale : vf{});
            }
        }
        return;
    }
    const float* positions = segment.panels->positions.room<float>(0) + segment.slot - segment.column;
    for (; c < span.high; c += kWidth) {
        const vu j = __builtin_convertvector(load(positions + c), vu);
        const vu own = draw_each(problem.seed, j, i, h, b);
        store(kept + c, own >= limit ? load(kept + c) * scale : vf{});
    }
}

static void find_multipliers(const Block& block, int64_t r, const Segment& segment,
                             const Span& span, float* kept) {
    const Problem& problem = *block.problem;
    const float* positions = segment.panels->positions.room<float>(0) + segment.slot - segment.column;
    const int64_t row = block.row_of(r);
    const float i = block.position_of(r);
    for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
        vf factor = all(1.f);
        for (int64_t t = 0; t < problem.term_count; t++) {
            const Term& term = problem.terms[t];
            if (term.kind != Kind::bell_weight || !acts(segment, term)) continue;
            const float variance = term.value.at(block.b, block.h, row);
            factor = factor * exp(log_bell(term, distance_of(positions, c, i), variance));
        }
        store(kept + c, factor);
    }
    if (problem.dropout > 0) drop(block, row, segment, span, kept);
}
