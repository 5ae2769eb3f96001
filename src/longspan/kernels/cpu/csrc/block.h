// A block: up to kBlock query rows of one walk, and which pairs they have. Its scores are one matrix,
// whose columns are the segments of keys that any of its rows meets.

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
    Ahead* ahead;
    bool finite;  // keys, values and rows that it meets, as far as a pass needs to know

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

static void add_segment(Block& block, const Part* part, int64_t slot, int64_t width,
                        const int64_t* words, int64_t thin = 0) {
    Panels* panels = panels_of(*block.w, part->keys);
    block.segments[block.segment_count++] = {part, panels, slot, width, block.columns, words, thin};
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
            if (high - low <= kThin && block.problem->relative() == nullptr) {
                add_segment(block, &part, low, kWidth, nullptr, high - low);
                continue;
            }
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
