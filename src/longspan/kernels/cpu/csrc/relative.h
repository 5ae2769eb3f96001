// Relative positions: (q_i + v)·r_{j-i} + u·k_j, the terms that Transformer-XL adds to q_i·k_j.
//
// The offsets that a block meets in a segment are a short run of the table: one product of the queries
// with that run gives a matrix whose rows are read with a shift of one each. Where a segment's keys
// lie far apart (global tokens) the run would be long, and pairs are computed one by one.

LONGSPAN_INLINE Vectors encodings_of(const Problem& problem, const Term& term) {
    return {const_cast<float*>(term.table), 0, term.head, problem.q.size, problem.q.size};
}

// Packs for one head; in the backward also clears its sums.
static void open_encodings(const Block& block, const Term& term) {
    Workspace& w = *block.w;
    if (w.encodings_head == block.h) return;
    w.encodings_head = block.h;
    Panels& panels = w.encodings;
    panels.order = {nullptr, 0, term.length};
    panels.b = 0;
    panels.h = block.h;
    panels.slots = up(term.length, kTile);
    panels.packed = panels.ready.room<uint8_t>(panels.slots / kPanel);
    std::memset(panels.packed, 0, panels.slots / kPanel);
    const int64_t size = panels.slots * padded(block.problem->q.size);
    if (term.table_gradient != nullptr)
        std::memset(panels.dk.room<float>(size), 0, size * sizeof(float));
}

// The run [first, last) of the table that a block's rows meet in a segment; whole panels.
struct Run {
    int64_t first, last;
    bool short_enough;
};

static Run run_of(const Block& block, const Term& term, int64_t s) {
    const Segment& segment = block.segments[s];
    const float* positions = segment.panels->positions.room<float>(0) + segment.slot - segment.column;
    Run run = {INT64_MAX, 0, false};
    for (int64_t r = 0; r < block.rows; r++) {
        const Span& span = block.span(r, s);
        if (span.high <= span.low) continue;
        const float i = block.position_of(r);
        run.first = least(run.first, table_place(term, static_cast<int64_t>(positions[span.low] - i)));
        run.last = most(run.last,
                        table_place(term, static_cast<int64_t>(positions[span.high - 1] - i)) + 1);
    }
    if (run.last > run.first) {
        run.first = down(run.first, kPanel);
        run.last = up(run.last, kPanel);
        run.short_enough = run.last - run.first <= 2 * (segment.width + kBlock);
    }
    return run;
}

// Packs a run; with `rows` also says whether it has no NaN or infinity.
static bool pack_encodings(const Block& block, const Term& term, const Run& run, bool rows) {
    Panels& panels = block.w->encodings;
    const Vectors table = encodings_of(*block.problem, term);
    float* keys = panels.keys.room<float>(panels.slots * table.size);
    float* key_rows = panels.key_rows.room<float>(panels.slots * padded(table.size));
    bool finite = true;
    for (int64_t panel = run.first / kPanel; panel * kPanel < run.last; panel++) {
        if (!(panels.packed[panel] & kKeys))
            pack_turned(panels, table, panel, keys + panel * kPanel * table.size);
        if (rows && !(panels.packed[panel] & kKeyRows)) {
            pack_rows(panels, table, panel, key_rows + panel * kPanel * padded(table.size));
            if (is_broken(panels, table, panel)) panels.packed[panel] |= kBroken;
        }
        panels.packed[panel] |= kKeys | (rows ? kKeyRows : 0);
        finite &= !(panels.packed[panel] & kBroken);
    }
    return finite;
}

// q + v of the block's rows.
static RowsInPlace shifted_queries(const Block& block, const Term& term, const RowsInPlace& queries) {
    if (term.position == nullptr) return queries;
    const int64_t size = block.problem->q.size, width = padded(size);
    float* shifted = block.w->turned_queries.room<float>(kBlock * width);
    const float* bias = term.position + block.h * term.position_head;
    for (int64_t r = 0; r < block.rows; r++)
        for (int64_t d = 0; d < width; d++)
            shifted[r * width + d] = d < size ? queries.data[r * queries.row + d] + bias[d] : 0.f;
    return {shifted, width};
}

static void relate(Block& block, const RowsInPlace& queries) {
    const Problem& problem = *block.problem;
    const Term* found = problem.relative();
    if (found == nullptr) return;
    const Term& term = *found;
    Workspace& w = *block.w;
    const int64_t size = problem.q.size;
    open_encodings(block, term);
    float* related = w.related.room<float>(kBlock * block.stride + kWidth);
    const RowsInPlace shifted = shifted_queries(block, term, queries);
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        if (!acts(segment, term)) continue;
        const float* positions =
            segment.panels->positions.room<float>(0) + segment.slot - segment.column;
        const Run run = run_of(block, term, s);
        if (run.last <= run.first) continue;
        const int64_t length = run.last - run.first;
        float* products = nullptr;
        if (run.short_enough) {
            pack_encodings(block, term, run, false);
            products = w.shifted.room<float>(kBlock * length + kWidth);
            const float* panels = w.encodings.keys.room<float>(0) + run.first * size;
            for (int64_t j = 0; j < length; j += kPanel)
                product<false>(block.rows, kPanel, size, shifted.data, shifted.row, 1, panels + j * size, kPanel,
                               products + j, length);
        }
        const float* table = term.table + block.h * term.head;
        for (int64_t r = 0; r < block.rows; r++) {
            const Span& span = block.span(r, s);
            const float i = block.position_of(r);
            float* row = related + r * block.stride;
            for (int64_t c = span.low; c < span.high; c++) {
                const int64_t place = table_place(term, static_cast<int64_t>(positions[c] - i));
                if (products != nullptr) {
                    row[c] = products[r * length + place - run.first];
                    continue;
                }
                float dot = 0;
                for (int64_t d = 0; d < size; d++)
                    dot += shifted.data[r * shifted.row + d] * table[place * size + d];
                row[c] = dot;
            }
        }
        if (term.content == nullptr) continue;
        const float* bias = term.content + block.h * term.content_head;
        const float* panels = segment.panels->keys.room<float>(0) + segment.slot * size;
        for (int64_t j = 0; j < segment.width; j += kPanel) {
            float content[kPanel];
            product<false>(1, kPanel, size, bias, 0, 1, panels + j * size, kPanel, content, kPanel);
            for (int64_t r = 0; r < block.rows; r++) {
                const Span& span = block.span(r, s);
                const int64_t low = most<int64_t>(span.low, segment.column + j);
                const int64_t high = least<int64_t>(span.high, segment.column + j + kPanel);
                for (int64_t c = low; c < high; c++)
                    related[r * block.stride + c] += content[c - segment.column - j];
            }
        }
    }
    block.related = related;
}

static void relate_backward(const Block& block, const RowsInPlace& queries, float* dq) {
    if (block.related == nullptr) return;
    const Problem& problem = *block.problem;
    const Term& term = *problem.relative();
    Workspace& w = *block.w;
    const int64_t size = problem.q.size, width = padded(size);
    const RowsInPlace shifted = shifted_queries(block, term, queries);
    float* sums = w.related_sums.room<float>(kBlock * width);
    std::memset(sums, 0, kBlock * width * sizeof(float));
    float* encodings = term.table_gradient == nullptr ? nullptr : w.encodings.dk.room<float>(0);
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        if (!acts(segment, term)) continue;
        const float* positions =
            segment.panels->positions.room<float>(0) + segment.slot - segment.column;
        const Run run = run_of(block, term, s);
        if (run.last <= run.first) continue;
        const int64_t length = run.last - run.first;
        float* products = nullptr;
        // What 0 times must not come near is met pair by pair.
        if (block.finite && run.short_enough && pack_encodings(block, term, run, true)) {
            products = w.shifted.room<float>(kBlock * length + kWidth);
            std::memset(products, 0, kBlock * length * sizeof(float));
        }
        const float* table = term.table + block.h * term.head;
        for (int64_t r = 0; r < block.rows; r++) {
            const Span& span = block.span(r, s);
            const float i = block.position_of(r);
            const float* row = block.related_gradients + r * block.stride;
            for (int64_t c = span.low; c < span.high; c++) {
                const int64_t place = table_place(term, static_cast<int64_t>(positions[c] - i));
                if (products != nullptr) {
                    products[r * length + place - run.first] += row[c];
                    continue;
                }
                if (row[c] == 0) continue;
                for (int64_t d = 0; d < size; d++)
                    sums[r * width + d] += row[c] * table[place * size + d];
                for (int64_t d = 0; encodings != nullptr && d < size; d++)
                    encodings[place * width + d] += row[c] * shifted.data[r * shifted.row + d];
            }
        }
        if (products != nullptr) {
            const float* rows = w.encodings.key_rows.room<float>(0) + run.first * width;
            product<true>(block.rows, width, length, products, length, 1, rows, width, sums, width);
            if (encodings != nullptr)
                product<true>(length, width, block.rows, products, 1, length, shifted.data, shifted.row,
                              encodings + run.first * width, width);
        }
        if (term.content == nullptr) continue;
        const float* bias = term.content + block.h * term.content_head;
        const RowsInPlace keys = rows_of(problem, segment, false);
        float* dk = segment.panels->dk.room<float>(0) + (segment.slot - segment.column) * width;
        double* to = term.content_gradient == nullptr
                         ? nullptr
                         : term.content_gradient + (block.b * problem.heads + block.h) * size;
        for (int64_t c = segment.column; c < segment.column + segment.width; c++) {
            float total = 0;
            for (int64_t r = 0; r < block.rows; r++)
                total += block.related_gradients[r * block.stride + c];
            if (total == 0) continue;
            for (int64_t d = 0; d < size; d++) dk[c * width + d] += total * bias[d];
            const float* key = keys.data + (c - segment.column) * keys.row;
            for (int64_t d = 0; to != nullptr && d < size; d++) to[d] += total * key[d];
        }
    }
    for (int64_t r = 0; r < block.rows; r++)
        for (int64_t d = 0; d < size; d++) dq[r * width + d] += sums[r * width + d];
    if (term.position_gradient == nullptr) return;
    double* to = term.position_gradient + (block.b * problem.heads + block.h) * size;
    for (int64_t r = 0; r < block.rows; r++)
        for (int64_t d = 0; d < size; d++) to[d] += sums[r * width + d];
}

// Adds a head's sums to the gradient of the table; another head starts anew.
static void write_encodings(const Problem& problem, Workspace& w) {
    const Term* term = problem.relative();
    if (term == nullptr || w.encodings_head < 0) return;
    if (term->table_gradient != nullptr) {
        const int64_t size = problem.q.size, width = padded(size);
        float* to = term->table_gradient + w.encodings_head * term->head;
        const float* from = w.encodings.dk.room<float>(0);
        for (int64_t place = 0; place < term->length; place++)
            for (int64_t d = 0; d < size; d++) to[place * size + d] += from[place * width + d];
    }
    w.encodings_head = -1;
}
