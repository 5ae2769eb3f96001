// What one thread works with: keys packed for the products, and the rows of one block.

// Memory that is aligned, and only ever grows.
struct Buffer {
    void* data = nullptr;
    int64_t bytes = 0;

    template <typename T>
    T* room(int64_t count) {
        const int64_t wanted = up(count * static_cast<int64_t>(sizeof(T)), 64) + 64;
        if (wanted > bytes) {
            std::free(data);
            data = std::aligned_alloc(64, up(wanted, 64));
            bytes = wanted;
            if (data == nullptr) std::abort();
        }
        return static_cast<T*>(data);
    }
    void release() {
        std::free(data);
        data = nullptr;
        bytes = 0;
    }
};

// Keys and values of one sample and key head in one order, packed tile by tile when first needed.
//
// `keys` holds panels of kPanel keys, transposed: D rows of kPanel. `values` holds the values'
// panels alike (for the backward), or rows of whole vectors (for the forward).
struct Panels {
    Order order;
    int64_t b, h, slots;
    Buffer keys, values, key_rows, value_rows, positions, ready, dk, dv;
    uint8_t* packed;
};

// What is done for a panel; the checks say that there is no NaN or infinity, or that there is.
enum Packed : uint8_t {
    kKeys = 1,
    kValues = 2,
    kKeyRows = 4,
    kValueRows = 8,
    kKeysChecked = 16,
    kValuesChecked = 32,
    kBroken = 64,
};

// A run of slots that a block of queries meets; its scores stand from `column` on. A thin one has so
// few keys (a global token or two) that its products are made key by key; `thin` counts them, or is 0.
struct Segment {
    const Part* part;
    Panels* panels;
    int64_t slot, width, column;
    const int64_t* words;
    int64_t thin;

    // Behind the last slot with a key.
    LONGSPAN_HERE int64_t end() const { return slot + (thin > 0 ? thin : width); }
};

constexpr int64_t kThin = 2;

constexpr int kMostPanels = 8;

struct Workspace {
    Panels panels[kMostPanels];
    int panel_count = 0;
    int64_t walk = -1, b = -1, key_head = -1;
    Panels encodings;  // of relative positions, packed like keys
    int64_t encodings_head = -1;
    Buffer related, related_gradients, shifted, turned_queries, related_sums;
    Buffer segments, scores, gradients, spans, groups, queries, grads, outputs, alive, kept, seen, saved, chosen;
};

LONGSPAN_INLINE int64_t padded(int64_t size) { return up(size, kWidth); }

LONGSPAN_INLINE bool same_order(const Order& a, const Order& b) {
    return a.index == b.index && a.length == b.length;
}

static void open_panels(Workspace& w, const Problem& problem, int64_t walk, int64_t b, int64_t h,
                        bool backward) {
    if (w.walk == walk && w.b == b && w.key_head == h) return;
    const Walk& own = problem.walks[walk];
    // What another walk packed of the same keys stays.
    int kept = 0;
    for (int i = 0; w.walk >= 0 && w.b == b && w.key_head == h && i < w.panel_count; i++)
        for (int64_t p = 0; p < own.part_count; p++)
            if (same_order(w.panels[i].order, own.parts[p].keys)) {
                std::swap(w.panels[i], w.panels[kept++]);
                break;
            }
    w.walk = walk;
    w.b = b;
    w.key_head = h;
    w.panel_count = kept;
    for (int64_t p = 0; p < own.part_count; p++) {
        const Order& order = own.parts[p].keys;
        bool known = false;
        for (int i = 0; i < w.panel_count; i++) known |= same_order(w.panels[i].order, order);
        if (known) continue;
        if (w.panel_count == kMostPanels) std::abort();
        Panels& panels = w.panels[w.panel_count++];
        panels.order = order;
        panels.b = b;
        panels.h = h;
        panels.slots = up(order.length, kTile);
        panels.packed = panels.ready.room<uint8_t>(panels.slots / kPanel);
        std::memset(panels.packed, 0, panels.slots / kPanel);
        float* position = panels.positions.room<float>(panels.slots + kWidth);
        for (int64_t s = 0; s < panels.slots; s++)
            position[s] = s < order.length ? static_cast<float>(order.at(b, s)) : 0.f;
    }
    for (int i = 0; backward && i < w.panel_count; i++) {
        Panels& panels = w.panels[i];
        const int64_t dk = panels.slots * padded(problem.k.size);
        const int64_t dv = panels.slots * padded(problem.v.size);
        std::memset(panels.dk.room<float>(dk), 0, dk * sizeof(float));
        std::memset(panels.dv.room<float>(dv), 0, dv * sizeof(float));
    }
}

static Panels* panels_of(Workspace& w, const Order& order) {
    for (int i = 0; i < w.panel_count; i++)
        if (same_order(w.panels[i].order, order)) return &w.panels[i];
    std::abort();
}

#if LONGSPAN_WIDTH == 16
// Sixteen numbers of sixteen rows, transposed in registers: pairs, fours, eights, then halves.
LONGSPAN_INLINE void turn(const float* const* rows, int64_t d, float* to) {
    __m512 a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_ps(rows[i] + d);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
        b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_ps(to + i * kPanel, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88));
        _mm512_storeu_ps(to + (i + 4) * kPanel, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88));
        _mm512_storeu_ps(to + (i + 8) * kPanel, _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd));
        _mm512_storeu_ps(to + (i + 12) * kPanel, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xdd));
    }
}
#endif

// One panel transposed: D rows of kPanel keys, 0 past the end of the order.
static void pack_turned(const Panels& panels, const Vectors& x, int64_t panel, float* to) {
    const float* rows[kPanel];
    for (int64_t s = 0; s < kPanel; s++) {
        const int64_t slot = panel * kPanel + s;
        rows[s] = slot < panels.order.length
                      ? x.at(panels.b, panels.h, panels.order.at(panels.b, slot))
                      : nullptr;
    }
    if (rows[kPanel - 1] == nullptr) {
        for (int64_t s = 0; s < kPanel; s++)
            for (int64_t d = 0; d < x.size; d++) to[d * kPanel + s] = rows[s] == nullptr ? 0 : rows[s][d];
        return;
    }
    int64_t d = 0;
#if LONGSPAN_WIDTH == 16
    for (int64_t s = 0; s < kPanel; s += 16)
        for (d = 0; d + 16 <= x.size; d += 16) turn(rows + s, d, to + d * kPanel + s);
#endif
    for (; d < x.size; d++)
        for (int64_t s = 0; s < kPanel; s++) to[d * kPanel + s] = rows[s][d];
}

// One panel as rows of whole vectors, 0 past their end and past the end of the order.
static void pack_rows(const Panels& panels, const Vectors& x, int64_t panel, float* to) {
    const int64_t width = padded(x.size);
    for (int64_t s = 0; s < kPanel; s++, to += width) {
        const int64_t slot = panel * kPanel + s;
        int64_t filled = 0;
        if (slot < panels.order.length) {
            const float* row = x.at(panels.b, panels.h, panels.order.at(panels.b, slot));
            std::memcpy(to, row, x.size * sizeof(float));
            filled = x.size;
        }
        for (int64_t d = filled; d < width; d++) to[d] = 0;
    }
}

// Rows that a product can take where they lie: in place, or packed.
struct RowsInPlace {
    const float* data;
    int64_t row;
};

LONGSPAN_INLINE bool in_place(const Panels& panels, const Vectors& x) {
    return panels.order.index == nullptr && x.size % kWidth == 0;
}

// 0 unless there is a NaN or an infinity.
LONGSPAN_INLINE vf nothing_times(const float* row, int64_t size) {
    vf found{};
    int64_t d = 0;
    for (; d + kWidth <= size; d += kWidth) found += load(row + d) * 0.f;
    if (d < size) found += load_some(row + d, size - d, 0) * 0.f;
    return found;
}

static bool is_broken(const Panels& panels, const Vectors& x, int64_t panel) {
    vf found{};
    const int64_t end = least((panel + 1) * kPanel, panels.order.length);
    for (int64_t slot = panel * kPanel; slot < end; slot++)
        found += nothing_times(x.at(panels.b, panels.h, panels.order.at(panels.b, slot)), x.size);
    return sum(found) != 0;
}

// Makes sure that what `wanted` names is packed for slots [first, last).
static void pack(Panels& panels, const Problem& problem, int64_t first, int64_t last, int wanted) {
    const Vectors &k = problem.k, &v = problem.v;
    if (wanted == 0) return;
    float* keys = wanted & kKeys ? panels.keys.room<float>(panels.slots * k.size) : nullptr;
    float* values = wanted & kValues ? panels.values.room<float>(panels.slots * v.size) : nullptr;
    float* key_rows =
        wanted & kKeyRows ? panels.key_rows.room<float>(panels.slots * padded(k.size)) : nullptr;
    float* value_rows =
        wanted & kValueRows ? panels.value_rows.room<float>(panels.slots * padded(v.size)) : nullptr;
    for (int64_t panel = first / kPanel; panel * kPanel < last; panel++) {
        const int missing = wanted & ~panels.packed[panel];
        if (missing & kKeys) pack_turned(panels, k, panel, keys + panel * kPanel * k.size);
        if (missing & kValues) pack_turned(panels, v, panel, values + panel * kPanel * v.size);
        if (missing & kKeyRows)
            pack_rows(panels, k, panel, key_rows + panel * kPanel * padded(k.size));
        if (missing & kValueRows)
            pack_rows(panels, v, panel, value_rows + panel * kPanel * padded(v.size));
        if (((missing & kKeysChecked) && is_broken(panels, k, panel)) ||
            ((missing & kValuesChecked) && is_broken(panels, v, panel)))
            panels.packed[panel] |= kBroken;
        panels.packed[panel] |= static_cast<uint8_t>(wanted);
    }
}
