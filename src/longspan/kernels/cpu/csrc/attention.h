// Attention over a layout, forward and backward. A block is up to kBlock query rows of one walk; its
// scores are one matrix, whose columns are the segments of keys that any of its rows meets.

struct Span {
    int32_t low, high;
};

// Rows whose products are made together.
constexpr int64_t kGroup = 8;
constexpr int64_t kGroups = kBlock / kGroup;

struct Block {
    const Problem* problem;
    const Walk* walk;
    Workspace* w;
    int64_t b, h, place, first, rows;
    Segment* segments;
    int64_t segment_count, columns, stride;
    Span* spans;   // of each row in each segment, in columns
    Span* groups;  // of each group of rows, all that any of them has
    const float* related;     // what relative positions add, where they act
    float* related_gradients;  // and its gradient

    LONGSPAN_HERE const Span& span(int64_t row, int64_t segment) const {
        return spans[segment * kBlock + row];
    }
    LONGSPAN_HERE const Span& group(int64_t number, int64_t segment) const {
        return groups[segment * kGroups + number];
    }
    int64_t row_of(int64_t r) const { return walk->queries.at(b, first + r); }
    float position_of(int64_t r) const {
        return static_cast<float>(row_of(r) + problem->m - problem->n);
    }
};

// --- which pairs a block has ---

static void add_segment(Block& block, const Part* part, int64_t slot, int64_t width,
                        const int64_t* words) {
    Panels* panels = panels_of(*block.w, part->keys);
    block.segments[block.segment_count++] = {part, panels, slot, width, block.columns, words};
    block.columns += width;
}

static void find_segments(Block& block) {
    block.segment_count = 0;
    block.columns = 0;
    int64_t most_segments = block.walk->part_count;
    for (int64_t p = 0; p < block.walk->part_count; p++) {
        const TileList* tiles = block.walk->parts[p].tiles;
        if (tiles != nullptr) {
            const int64_t t = block.first / kTile;
            most_segments += tiles->start[t + 1] - tiles->start[t];
        }
    }
    block.segments = block.w->segments.room<Segment>(most_segments);
    for (int64_t p = 0; p < block.walk->part_count; p++) {
        const Part& part = block.walk->parts[p];
        int64_t low = INT64_MAX, high = 0;
        for (int64_t r = 0; r < block.rows; r++) {
            const int64_t from = part.low.at(block.b, block.place, block.first + r);
            const int64_t to = part.high.at(block.b, block.place, block.first + r);
            if (to > from) {
                low = least(low, from);
                high = most(high, to);
            }
        }
        if (high <= low) continue;
        if (part.tiles == nullptr) {
            low = down(low, kPanel);
            add_segment(block, &part, low, up(high, kPanel) - low, nullptr);
            continue;
        }
        const TileList& tiles = *part.tiles;
        const int64_t t = block.first / kTile;
        for (int64_t i = tiles.start[t]; i < tiles.start[t + 1]; i++) {
            const int64_t mask = tiles.mask[block.b * tiles.mask_batch + block.place * tiles.mask_head + i];
            const int64_t slot = tiles.column[i] * kTile;
            if (mask == -2 || slot + kTile <= low || slot >= high) continue;
            const int64_t* words = nullptr;
            if (mask >= 0) words = tiles.words + mask * kTile + block.first % kTile;
            Segment* last = block.segment_count ? &block.segments[block.segment_count - 1] : nullptr;
            if (words == nullptr && last != nullptr && last->part == &part &&
                last->words == nullptr && last->slot + last->width == slot) {
                last->width += kTile;
                block.columns += kTile;
            } else {
                add_segment(block, &part, slot, kTile, words);
            }
        }
    }
    // A little more than the columns, so that rows do not fall on the same lines of the cache.
    block.stride = block.columns + 16;
    block.spans = block.w->spans.room<Span>(most<int64_t>(block.segment_count, 1) * kBlock);
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        const Part& part = *segment.part;
        for (int64_t r = 0; r < kBlock; r++) {
            Span& span = block.spans[s * kBlock + r];
            span = {0, 0};
            if (r >= block.rows) continue;
            int64_t low = part.low.at(block.b, block.place, block.first + r);
            int64_t high = part.high.at(block.b, block.place, block.first + r);
            low = most(low, segment.slot);
            high = least(high, segment.slot + segment.width);
            if (high <= low) continue;
            span.low = static_cast<int32_t>(low - segment.slot + segment.column);
            span.high = static_cast<int32_t>(high - segment.slot + segment.column);
        }
    }
    block.groups = block.w->groups.room<Span>(most<int64_t>(block.segment_count, 1) * kGroups);
    for (int64_t s = 0; s < block.segment_count; s++) {
        for (int64_t g = 0; g < kGroups; g++) {
            Span joint = {INT32_MAX, 0};
            for (int64_t r = g * kGroup; r < (g + 1) * kGroup; r++) {
                const Span& span = block.span(r, s);
                if (span.high <= span.low) continue;
                joint.low = least(joint.low, span.low);
                joint.high = most(joint.high, span.high);
            }
            block.groups[s * kGroups + g] = joint;
        }
    }
}

// Does a row lack pairs of its span in a segment?
LONGSPAN_INLINE bool has_holes(const Block& block, const Segment& segment, const Span& span) {
    const Part& part = *segment.part;
    if (segment.words != nullptr || part.document_count > 0) return true;
    if (part.allowed == nullptr) return false;
    const int64_t* before =
        part.allowed_before + block.b * part.allowed_batch + segment.slot - segment.column;
    return before[span.high] - before[span.low] != span.high - span.low;
}

// alive[c] is -1 where the pair exists, 0 elsewhere, for the row's span.
static void find_alive(const Block& block, int64_t r, const Segment& segment, const Span& span,
                       int32_t* alive) {
    const Part& part = *segment.part;
    const int64_t shift = segment.slot - segment.column;
    for (int64_t c = span.low; c < span.high; c++) alive[c] = -1;
    if (segment.words != nullptr) {
        const uint64_t word = static_cast<uint64_t>(segment.words[r]);
        for (int64_t c = span.low; c < span.high; c++)
            alive[c] &= -static_cast<int32_t>((word >> (c - segment.column)) & 1);
    }
    if (part.allowed != nullptr) {
        const uint8_t* allowed = part.allowed + block.b * part.allowed_batch + shift;
        for (int64_t c = span.low; c < span.high; c++) alive[c] &= -static_cast<int32_t>(allowed[c]);
    }
    for (int64_t d = 0; d < part.document_count; d++) {
        const Documents& documents = part.documents[d];
        const int64_t own = documents.rows[block.b * documents.rows_batch + block.first + r];
        const int64_t* keys = documents.keys + block.b * documents.keys_batch + shift;
        for (int64_t c = span.low; c < span.high; c++)
            alive[c] &= -static_cast<int32_t>(keys[c] == own);
    }
}

// --- weights on one row ---

LONGSPAN_INLINE const Term* relative_term(const Problem& problem) {
    for (int64_t t = 0; t < problem.term_count; t++)
        if (problem.terms[t].kind == Kind::relative) return &problem.terms[t];
    return nullptr;
}

LONGSPAN_INLINE bool acts(const Segment& segment, const Term& term) {
    return (segment.part->active >> term.number) & 1;
}

// What a bell or a ramp needs to know of a row.
struct Curve {
    float value, position;
};

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
    if (problem.dropout <= 0) return;
    const uint32_t limit = static_cast<uint32_t>(problem.dropout * 4294967296.0);
    const float scale = 1 / (1 - static_cast<float>(problem.dropout));
    const uint32_t own = static_cast<uint32_t>(row + problem.m - problem.n);
    uint32_t words[4] = {0, 0, 0, 0};
    int64_t group = -1;
    for (int64_t c = span.low; c < span.high; c++) {
        const int64_t j = static_cast<int64_t>(positions[c]);
        if (j >> 2 != group) {
            group = j >> 2;
            philox_words(problem.seed, static_cast<uint32_t>(group), own,
                         static_cast<uint32_t>(block.h), static_cast<uint32_t>(block.b), words);
        }
        kept[c] *= words[j & 3] >= limit ? scale : 0.f;
    }
}

// --- scores of a block ---

// Of one or two rows the products are not worth packing keys for.
LONGSPAN_INLINE bool takes_few(const Block& block, const Segment& segment, const Vectors& x) {
    return block.rows <= 2 && in_place(*segment.panels, x) && relative_term(*block.problem) == nullptr;
}

static void meet_few(const Block& block, int64_t s, const RowsInPlace& queries, const Vectors& x,
                     float* scores) {
    const Segment& segment = block.segments[s];
    for (int64_t r = 0; r < block.rows; r++) {
        const float* query = queries.data + r * queries.row;
        for (int64_t c = block.span(r, s).low; c < block.span(r, s).high; c++) {
            const float* key =
                x.at(segment.panels->b, segment.panels->h, segment.slot + c - segment.column);
            vf sums{};
            for (int64_t d = 0; d < x.size; d += kWidth) sums += load(query + d) * load(key + d);
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
            meet_few(block, s, queries, x, scores);
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
        if (whole) {
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

LONGSPAN_INLINE RowsInPlace rows_of(const Problem& problem, const Segment& segment, bool values) {
    const Panels& panels = *segment.panels;
    const Vectors& x = values ? problem.v : problem.k;
    if (in_place(panels, x)) return {x.at(panels.b, panels.h, segment.slot), x.row};
    const Buffer& packed = values ? panels.value_rows : panels.key_rows;
    const int64_t width = padded(x.size);
    return {static_cast<const float*>(packed.data) + segment.slot * width, width};
}

// sums (rows x size) += weights (rows x columns) times keys or values.
static void collect(const Block& block, const float* weights, bool values, float* sums,
                    const uint8_t* seen) {
    const Problem& problem = *block.problem;
    const Vectors& x = values ? problem.v : problem.k;
    const int64_t width = padded(x.size);
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
        // In steps whose keys or values stay in the nearest cache for all groups.
        constexpr int64_t kStep = 64;
        for (int64_t j = segment.column; j < segment.column + segment.width; j += kStep) {
            for (int64_t g = 0; g * kGroup < block.rows; g++) {
                const Span& group = block.group(g, s);
                const int64_t low = most<int64_t>(group.low, j);
                const int64_t high = least<int64_t>(group.high, j + kStep);
                if (high <= low) continue;
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
        for (int64_t c = segment.column; c < segment.column + segment.width; c += kGroup) {
            int64_t first = kBlock, last = 0;
            for (int64_t g = 0; g * kGroup < block.rows; g++) {
                const Span& group = block.group(g, s);
                if (c >= group.high || c + kGroup <= group.low) continue;
                first = least(first, g * kGroup);
                last = least(g * kGroup + kGroup, block.rows);
            }
            if (last <= first) continue;
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

LONGSPAN_INLINE float alpha_of(const Problem& problem, int64_t h) {
    return problem.alphas == nullptr ? problem.alpha : problem.alphas[h];
}

// --- forward ---

// Shares of a row in place, and their sum. T is two numbers, whole and rest: what rounding it to one
// would lose decides which pairs have a share.
template <Shape kShape>
static float shares(const Block& block, int64_t r, float* x, float whole, float rest, float epsilon) {
    vf totals{};
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Span& span = block.span(r, s);
        for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
            vf y = load(x + c) - whole;
            if (kShape != Shape::softmax) y = y - rest;
            const vf p = value_of<kShape>(y, epsilon).p;
            totals += p;
            store(x + c, p);
        }
    }
    return sum(totals);
}

// Can a block take the short way: no weights, no holes, no dropout, everything finite?
static bool is_plain(const Block& block) {
    const Problem& problem = *block.problem;
    if (problem.term_count > 0 || problem.dropout > 0 || !problem.finite || !(problem.scale > 0))
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
            const vf p = exp(load(x + c) * scale - top);
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
        const int keys = takes_few(block, segment, problem.k) ? 0 : kKeys;
        const int rows = in_place(*segment.panels, problem.v) ? 0 : kValueRows;
        pack(*segment.panels, problem, segment.slot, segment.slot + segment.width, keys | rows);
    }
    float* scores = w.scores.room<float>(kBlock * block.stride + kWidth);
    float* outputs = w.outputs.room<float>(kBlock * width);
    uint8_t* seen = nullptr;
    if (!problem.finite) {
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
            total = shares<Shape::softmax>(block, r, x, top, 0, 0);
            limit = std::log(total);
        } else {
            float* chosen = w.chosen.room<float>(block.columns + 2 * kWidth);
            int64_t count = 0;
            const float floor = top - 1 / normalizer.epsilon;
            for (int64_t s = 0; s < block.segment_count; s++) {
                const Span& span = block.span(r, s);
                count = candidates(x, span.low, span.high, top, floor, chosen, count);
            }
            limit = top == top ? threshold(normalizer, chosen, count, guess) : NAN;
            guess = limit == limit ? limit : 0;
            const float whole = top + limit, rest = limit - (whole - top);
            if (normalizer.shape == Shape::entmax15)
                total = shares<Shape::entmax15>(block, r, x, whole, rest, 0.5f);
            else if (normalizer.shape == Shape::sparsemax)
                total = shares<Shape::sparsemax>(block, r, x, whole, rest, 1.f);
            else
                total = shares<Shape::general>(block, r, x, whole, rest, normalizer.epsilon);
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
    std::memset(outputs, 0, kBlock * width * sizeof(float));
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
            const double both = most(limit, limits[r]) +
                                std::log1p(std::exp(-std::fabs(limit - limits[r])));
            const float mine = static_cast<float>(std::exp(limits[r] - both)) * inverse[r];
            const float theirs = static_cast<float>(std::exp(limit - both));
            for (int64_t d = 0; d < problem.v.size; d++) out[d] = y[d] * mine + out[d] * theirs;
            limit = both;
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
