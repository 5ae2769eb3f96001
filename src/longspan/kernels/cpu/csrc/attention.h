// Attention over a block: scores, and the products with keys and values, for both passes.

// --- scores of a block ---

// Of one or two rows, or keys, the products are not worth packing keys for.
LONGSPAN_INLINE bool takes_few(const Block& block, const Segment& segment, const Vectors& x) {
    if (segment.thin > 0) return true;
    return block.rows <= 2 && in_place(*segment.panels, x) && block.problem->relative() == nullptr;
}

// What a segment's products need packed.
LONGSPAN_INLINE int needs(const Block& block, const Segment& segment, bool values) {
    const Vectors& x = values ? block.problem->v : block.problem->k;
    if (!takes_few(block, segment, x)) return values ? kValues : kKeys;
    return in_place(*segment.panels, x) ? 0 : values ? kValueRows : kKeyRows;
}

// Rows of keys or values, where they lie or packed.
LONGSPAN_INLINE RowsInPlace rows_of(const Problem& problem, const Segment& segment, bool values) {
    const Panels& panels = *segment.panels;
    const Vectors& x = values ? problem.v : problem.k;
    if (in_place(panels, x)) return {x.at(panels.b, panels.h, segment.slot), x.row};
    const Buffer& packed = values ? panels.value_rows : panels.key_rows;
    const int64_t width = padded(x.size);
    return {static_cast<const float*>(packed.data) + segment.slot * width, width};
}

static void meet_few(const Block& block, int64_t s, const RowsInPlace& queries, bool values,
                     float* scores) {
    const Segment& segment = block.segments[s];
    const int64_t size = (values ? block.problem->v : block.problem->k).size;
    const RowsInPlace keys = rows_of(*block.problem, segment, values);
    for (int64_t r = 0; r < block.rows; r++) {
        const float* query = queries.data + r * queries.row;
        for (int64_t c = block.span(r, s).low; c < block.span(r, s).high; c++) {
            const float* key = keys.data + (c - segment.column) * keys.row;
            vf sums{};
            for (int64_t d = 0; d < size; d += kWidth) sums += load(query + d) * load(key + d);
            scores[r * block.stride + c] = sum(sums);
        }
    }
}

// Raw products of queries (or of the output's gradient) with keys (or values), where a span is.
static void meet(const Block& block, const RowsInPlace& queries, int64_t size, bool values,
                 float* scores) {
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        const Vectors& x = values ? block.problem->v : block.problem->k;
        if (takes_few(block, segment, x)) {
            meet_few(block, s, queries, values, scores);
            continue;
        }
        Buffer& packed = values ? segment.panels->values : segment.panels->keys;
        const float* panels = packed.room<float>(0) + segment.slot * size;
        for (int64_t j = 0; j < segment.width; j += kPanel) {
            for (int64_t g = 0; g * kGroup < block.rows; g++) {
                // Of a panel at the edge only the vectors that the group has.
                const Span& group = block.group(g, s);
                const int64_t low = most(down(group.low, kWidth), segment.column + j);
                const int64_t high = least(up(group.high, kWidth), segment.column + j + kPanel);
                if (high <= low) continue;
                block.ahead->step();
                product<false>(least(kGroup, block.rows - g * kGroup), high - low, size,
                               queries.data + g * kGroup * queries.row, queries.row, 1,
                               panels + j * size + (low - segment.column - j), kPanel,
                               scores + g * kGroup * block.stride + low, block.stride);
            }
        }
    }
}

// The largest score; where there is none, NaN if that is why.
LONGSPAN_INLINE float top_or_nan(const Block& block, int64_t r, const float* x, float top) {
    if (top != -INFINITY) return top;
    for (int64_t s = 0; s < block.segment_count; s++)
        for (int64_t c = block.span(r, s).low; c < block.span(r, s).high; c++)
            if (x[c] != x[c]) return NAN;
    return top;
}

// Finishes one row's scores in place: scale, weights, -inf where no pair exists. Returns the largest,
// which is -inf for a row without pairs. NaN is not among what it looks at, unless there is nothing
// else: it shows in the sums that follow.
// `saved` keeps the row after each bell that multiplies scores, for its gradient.
static float finish_scores(const Block& block, int64_t r, float* x, float* saved, uint8_t* seen) {
    const Problem& problem = *block.problem;
    bool removes = false;
    for (int64_t t = 0; t < problem.term_count; t++)
        removes |= problem.terms[t].kind == Kind::bias;
    int32_t* alive = block.w->alive.room<int32_t>(block.columns + kWidth);
    vf top = all(-INFINITY);
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        const Span& span = block.span(r, s);
        if (span.high <= span.low) continue;
        const int64_t from = down(span.low, kWidth);
        const bool holes = has_holes(block, segment, span);
        if (!holes && problem.term_count == 0 && seen == nullptr) {
            for (int64_t c = from; c < span.high; c += kWidth) {
                vf value = load(x + c) * problem.scale;
                if (c < span.low || c + kWidth > span.high)
                    value = inside(c, span.low, span.high) ? value : all(-INFINITY);
                top = most(top, value);
                store(x + c, value);
            }
            continue;
        }
        if (holes || removes) find_alive(block, r, segment, span, alive);
        for (int64_t c = from; c < span.high; c += kWidth) store(x + c, load(x + c) * problem.scale);
        for (int64_t t = 0; t < problem.term_count; t++) {
            const Term& term = problem.terms[t];
            if (acts(segment, term)) apply(block, term, r, segment, span, x, alive);
            if (saved != nullptr && term.kind == Kind::bell_score)
                std::memcpy(saved + t * block.columns + from, x + from,
                            (up(span.high, kWidth) - from) * sizeof(float));
        }
        for (int64_t c = from; c < span.high; c += kWidth) {
            vi real = inside(c, span.low, span.high);
            if (holes || removes) real &= load(alive + c);
            const vf value = real ? load(x + c) : all(-INFINITY);
            top = most(top, value);
            store(x + c, value);
            if (seen != nullptr)
                for (int lane = 0; lane < kWidth; lane++) seen[c + lane] = real[lane] != 0;
        }
    }
    return top_or_nan(block, r, x, largest(top));
}

// Puts 0 where a row has no span, so that products over rows together may run over it: as far as its
// group reaches, or over whole segments.
LONGSPAN_INLINE void clear_outside(const Block& block, int64_t r, float* x, bool whole) {
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        const Span& span = block.span(r, s);
        Span around = block.group(r / kGroup, s);
        if (whole || segment.thin > 0) {
            around.low = static_cast<int32_t>(segment.column);
            around.high = static_cast<int32_t>(segment.column + segment.width);
        }
        const bool empty = span.high <= span.low;
        const int64_t low = empty ? around.high : down(span.low, kWidth);
        for (int64_t c = down(around.low, kWidth); c < low; c += kWidth) store(x + c, vf{});
        if (empty) continue;
        for (int64_t c = up(span.high, kWidth); c < around.high; c += kWidth) store(x + c, vf{});
    }
}

// The block's rows of a tensor as rows of whole vectors: where they lie, or copied together.
static RowsInPlace block_rows(const Block& block, const Vectors& x, Buffer& buffer) {
    if (block.walk->queries.index == nullptr && x.size % kWidth == 0)
        return {x.at(block.b, block.h, block.first), x.row};
    const int64_t width = padded(x.size);
    float* to = buffer.room<float>(kBlock * width);
    for (int64_t r = 0; r < block.rows; r++) {
        std::memcpy(to + r * width, x.at(block.b, block.h, block.row_of(r)), x.size * sizeof(float));
        for (int64_t d = x.size; d < width; d++) to[r * width + d] = 0;
    }
    return {to, width};
}

// sums (rows x size) of what the thin segments have: the others add to them.
static void begin_sums(const Block& block, const float* weights, bool values, float* sums) {
    const int64_t width = padded((values ? block.problem->v : block.problem->k).size);
    std::memset(sums, 0, kBlock * width * sizeof(float));
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        const RowsInPlace from = rows_of(*block.problem, segment, values);
        for (int64_t i = 0; i < segment.thin; i++)
            for (int64_t d = 0; d < width; d += kWidth) {
                const vf own = load(from.data + i * from.row + d);
                for (int64_t r = 0; r < block.rows; r++) {
                    float* to = sums + r * width + d;
                    store(to, load(to) + weights[r * block.stride + segment.column + i] * own);
                }
            }
    }
}

// sums (rows x size) = weights (rows x columns) times keys or values.
static void collect(const Block& block, const float* weights, bool values, float* sums,
                    const uint8_t* seen) {
    const Problem& problem = *block.problem;
    const Vectors& x = values ? problem.v : problem.k;
    const int64_t width = padded(x.size);
    if (seen == nullptr)
        begin_sums(block, weights, values, sums);
    else
        std::memset(sums, 0, kBlock * width * sizeof(float));
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        const RowsInPlace from = rows_of(problem, segment, values);
        if (seen != nullptr) {
            for (int64_t r = 0; r < block.rows; r++)
                for (int64_t c = block.span(r, s).low; c < block.span(r, s).high; c++)
                    if (seen[r * block.stride + c])
                        for (int64_t d = 0; d < x.size; d++)
                            sums[r * width + d] += weights[r * block.stride + c] *
                                                   from.data[(c - segment.column) * from.row + d];
            continue;
        }
        if (segment.thin > 0) continue;
        // In steps whose keys or values stay in the nearest cache for all groups.
        constexpr int64_t kStep = 64;
        for (int64_t j = segment.column; j < segment.column + segment.width; j += kStep) {
            for (int64_t g = 0; g * kGroup < block.rows; g++) {
                const Span& group = block.group(g, s);
                const int64_t low = most<int64_t>(group.low, j);
                const int64_t high = least<int64_t>(group.high, j + kStep);
                if (high <= low) continue;
                block.ahead->step();
                product<true>(least(kGroup, block.rows - g * kGroup), width, high - low,
                              weights + g * kGroup * block.stride + low, block.stride, 1,
                              from.data + (low - segment.column) * from.row, from.row,
                              sums + g * kGroup * width, width);
            }
        }
    }
}

// sums of keys += weights-transposed times rows of the block.
static void spread(const Block& block, const float* weights, const RowsInPlace& rows, int64_t size,
                   bool values, const uint8_t* seen) {
    const int64_t width = padded(size);
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        Buffer& buffer = values ? segment.panels->dv : segment.panels->dk;
        float* sums = buffer.room<float>(0) + (segment.slot - segment.column) * width;
        if (seen != nullptr) {
            for (int64_t r = 0; r < block.rows; r++)
                for (int64_t c = block.span(r, s).low; c < block.span(r, s).high; c++)
                    if (seen[r * block.stride + c])
                        for (int64_t d = 0; d < size; d++)
                            sums[c * width + d] +=
                                weights[r * block.stride + c] * rows.data[r * rows.row + d];
            continue;
        }
        if (segment.thin > 0) {
            product<true>(segment.thin, width, block.rows, weights + segment.column, 1, block.stride,
                          rows.data, rows.row, sums + segment.column * width, width);
            continue;
        }
        for (int64_t c = segment.column; c < segment.column + segment.width; c += kGroup) {
            int64_t first = kBlock, last = 0;
            for (int64_t g = 0; g * kGroup < block.rows; g++) {
                const Span& group = block.group(g, s);
                if (c >= group.high || c + kGroup <= group.low) continue;
                first = least(first, g * kGroup);
                last = least(g * kGroup + kGroup, block.rows);
            }
            if (last <= first) continue;
            block.ahead->step();
            product<true>(kGroup, width, last - first, weights + first * block.stride + c, 1,
                          block.stride, rows.data + first * rows.row, rows.row, sums + c * width, width);
        }
    }
}

#include "relative.h"

static Block open_block(const Problem& problem, Workspace& w, int64_t walk, int64_t b, int64_t h,
                        int64_t first, int64_t last) {
    Block block{};
    block.problem = &problem;
    block.walk = &problem.walks[walk];
    block.w = &w;
    block.b = b;
    block.h = h;
    block.place = block.walk->place[h];
    block.first = first;
    block.rows = least(kBlock, last - first);
    find_segments(block);
    return block;
}

// What the block after this one reads for the first time, where rows and keys come in their order, and
// what this one writes at its end.
static void look_ahead(Block& block, Ahead& ahead, const Vectors& out, const Vectors* also) {
    const Problem& problem = *block.problem;
    block.ahead = &ahead;
    if (block.walk->queries.index != nullptr) return;
    const int64_t next = block.first + block.rows, length = block.walk->queries.length;
    ahead.add(out, block.b, block.h, block.first, block.rows);
    for (int64_t s = 0; s < block.segment_count && ahead.count == 1; s++) {
        const Segment& segment = block.segments[s];
        const Panels& panels = *segment.panels;
        if (panels.order.index != nullptr || segment.part->tiles != nullptr) continue;
        const int64_t rows = least(panels.order.length - segment.end(), kPanel);
        ahead.add(problem.k, panels.b, panels.h, segment.end(), rows);
        ahead.add(problem.v, panels.b, panels.h, segment.end(), rows);
    }
    ahead.add(problem.q, block.b, block.h, next, least(length - next, kBlock));
    if (also != nullptr) ahead.add(*also, block.b, block.h, next, least(length - next, kBlock));
}

LONGSPAN_INLINE float alpha_of(const Problem& problem, int64_t h) {
    return problem.alphas == nullptr ? problem.alpha : problem.alphas[h];
}

// Does a block meet a panel with a NaN or an infinity, which 0 times must not come near?
static bool has_broken(const Block& block) {
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        for (int64_t panel = segment.slot / kPanel; panel * kPanel < segment.end(); panel++)
            if (segment.panels->packed[panel] & kBroken) return true;
    }
    return false;
}

static bool has_broken(const Block& block, const RowsInPlace& rows, int64_t size) {
    vf found{};
    for (int64_t r = 0; r < block.rows; r++) found += nothing_times(rows.data + r * rows.row, size);
    return sum(found) != 0;
}

// Can a block take the short way: no weights, no holes, no dropout, everything finite?
static bool is_plain(const Block& block) {
    const Problem& problem = *block.problem;
    if (problem.term_count > 0 || problem.dropout > 0 || !block.finite || !(problem.scale > 0))
        return false;
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        if (segment.words == nullptr && segment.part->allowed == nullptr &&
            segment.part->document_count == 0)
            continue;
        for (int64_t r = 0; r < block.rows; r++)
            if (block.span(r, s).high > block.span(r, s).low &&
                has_holes(block, segment, block.span(r, s)))
                return false;
    }
    return true;
}

// A row's limit in two floats, the second what the first rounds away.
struct Limit {
    float whole, rest;
};
LONGSPAN_INLINE Limit split(double limit) {
    const float whole = static_cast<float>(limit);
    return {whole, static_cast<float>(limit - whole)};
}

// e^(x - rest), for what is hardly above 0, cheaper than exp: log2(e) in two floats, like a limit. Scores
// themselves must not come into such a product: they may be large, and then it is not the number that
// the limit was made of.
LONGSPAN_INLINE vf exp_above(vf x, float rest) {
    constexpr float kLog2E = 1.44269502f, kBeyond = 1.92596299e-8f;
    return exp2(x * kLog2E + (x * kBeyond - rest * kLog2E));
}

// Of a row whose scores are finished, for sparsemax and entmax: those that can have a share, and the
// limit, counted from the largest; NaN where that is.
static Candidates limit_of_row(const Block& block, int64_t r, const float* x, float top,
                             const Normalizer& normalizer, float guess) {
    Candidates row = {block.w->chosen.room<float>(block.columns + 2 * kWidth), 0,
                      -1.000001f / normalizer.epsilon, NAN};
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Span& span = block.span(r, s);
        row.count = candidates(x, down(span.low, kWidth), span.high, top, row.bound, row.values,
                               row.count);
    }
    if (top == top) find_limit(normalizer, row, guess);
    return row;
}
