// The gradients of a block: its rows again, then ds, and from it everything else.

// Adds what one row's ds says about a term, and turns ds into that before the term.
static void apply_backward(const Block& block, const Term& term, int64_t r, const Segment& segment,
                           const Span& span, const float* saved, float* ds, double& total) {
    const float* positions = segment.panels->positions.room<float>(0) + segment.slot - segment.column;
    const int64_t row = block.row_of(r);
    const float i = block.position_of(r);
    const int64_t from = down(span.low, kWidth);
    vf sums{};
    switch (term.kind) {
        case Kind::bell_bias:
            if (term.value_gradient.data == nullptr) break;
            for (int64_t c = from; c < span.high; c += kWidth) {
                const vf d = distance_of(positions, c, i), g = load(ds + c);
                sums += g * (d * d);
            }
            total += sum(sums);
            break;
        case Kind::bell_score: {
            const float variance = term.value.at(block.b, block.h, row);
            for (int64_t c = from; c < span.high; c += kWidth) {
                const vf d = distance_of(positions, c, i), g = load(ds + c);
                sums += g == 0.f ? g : g * load(saved + c) * (d * d);
                const vf before = g * exp(log_bell(term, d, variance));
                store(ds + c, g == 0.f ? g : before);
            }
            total += sum(sums);
            break;
        }
        case Kind::ramp: {
            if (term.value_gradient.data == nullptr) break;
            const float own = term.value.at(block.b, block.h, row);
            for (int64_t c = from; c < span.high; c += kWidth) {
                const vf m = ramp(term, distance_of(positions, c, i), own), g = load(ds + c);
                sums += (m < 1.f) & (g != 0.f) ? g / m : vf{};
            }
            total += sum(sums);
            break;
        }
        case Kind::bias: {
            const int64_t own = block.b * term.batch + block.h * term.head + row * term.row;
            if (term.sum_gradient != nullptr)
                for (int64_t c = span.low; c < span.high; c++)
                    term.sum_gradient[own + static_cast<int64_t>(positions[c]) * term.key] += ds[c];
            else if (term.table_gradient != nullptr)
                for (int64_t c = span.low; c < span.high; c++)
                    term.table_gradient[own + static_cast<int64_t>(positions[c]) * term.key] += ds[c];
            break;
        }
        case Kind::distance:
            if (term.sum_gradient != nullptr) {
                double* table =
                    term.sum_gradient + (block.b * block.problem->heads + block.h) * term.length;
                for (int64_t c = span.low; c < span.high; c++)
                    table[table_place(term, static_cast<int64_t>(positions[c] - i))] += ds[c];
            }
            break;
        case Kind::alibi:
            if (term.sum_gradient == nullptr) break;
            for (int64_t c = from; c < span.high; c += kWidth) {
                const vf d = distance_of(positions, c, i);
                sums += load(ds + c) * (d < 0.f ? -d : d);
            }
            total += sum(sums);
            break;
        case Kind::relative: {
            float* to = block.related_gradients + r * block.stride;
            for (int64_t c = from; c < span.high; c += kWidth)
                store(to + c, load(ds + c) * block.problem->scale);
            break;
        }
        case Kind::bell_weight: break;
    }
}

// The sum over ds (or over the gradient to a factor's logarithm) alone, for normalised bells.
static double plain_sum(const Span& span, const float* ds, const float* saved) {
    vf sums{};
    for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
        const vf g = load(ds + c);
        sums += saved == nullptr ? g : (g == 0.f ? g : g * load(saved + c));
    }
    return sum(sums);
}

// Writes a row's gradient of a bell's variance, a ramp's span, or a slope.
static void add_total(const Block& block, const Term& term, int64_t row, double total, double plain) {
    if (term.kind == Kind::alibi) {
        if (term.sum_gradient != nullptr)
            term.sum_gradient[block.b * block.problem->heads + block.h] -= total;
        return;
    }
    if (term.value_gradient.data == nullptr) return;
    float& to = term.value_gradient.at(block.b, block.h, row);
    if (term.kind == Kind::ramp) {
        to += static_cast<float>(total / term.softness);
        return;
    }
    const double variance = term.value.at(block.b, block.h, row);
    double gradient = total / (2 * variance * variance);
    if (term.normalized) gradient -= plain / (2 * variance);
    to += static_cast<float>(gradient);
}

// The mean of the gradients under p as the output tells it, and how much of it may be rounding.
struct Told {
    float mean, doubt;
};

// The mean of the gradients under p. Where a row may have more pairs in another walk it is told by the
// output, unless what is here is all of it as far as the output can tell: of a single pair nothing may
// be left but 0, and the output's rounding would be, times queries of any size.
LONGSPAN_INLINE float mean_of(float weighted, float total, const Told* told) {
    constexpr float kAll = 1 - 0x1p-22f;
    if (told != nullptr && !(total >= kAll && std::fabs(weighted - told->mean) <= told->doubt))
        return told->mean;
    return total == 0 ? 0 : weighted / total;
}

// p in x's place and the gradient before the mean is taken off in ds's; then both finished.
template <Shape kShape>
static double row_gradient(const Block& block, int64_t r, float* x, float* ds, const float* kept,
                           const Limit& limit, float epsilon, const Told* told,
                           bool wants_alpha) {
    float* scratch = block.w->chosen.room<float>(2 * block.columns + 2 * kWidth);
    vf weighted{}, slopes{};
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Span& span = block.span(r, s);
        for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
            const vf score = load(x + c), y = score - limit.whole - limit.rest;
            const vi real = score != -INFINITY;
            const Value value = value_of<kShape>(y, epsilon);
            vf g = load(ds + c);
            if (kept != nullptr) g = g * load(kept + c);
            g = real ? g : vf{};
            const vf slope = real ? value.slope : vf{};
            weighted += slope * g;
            slopes += slope;
            store(x + c, real ? value.p : vf{});
            store(ds + c, g);
            if (kShape == Shape::general) store(scratch + c, slope);
            if (wants_alpha)
                store(scratch + block.columns + c, log_share(y, real ? value.p : vf{}, epsilon));
        }
    }
    const float total = sum(slopes);
    const float mean = mean_of(sum(weighted), total, told);
    vf alphas{};
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Span& span = block.span(r, s);
        for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
            const vf p = load(x + c), away = load(ds + c) - mean;
            vf slope = p;
            if (kShape == Shape::entmax15) slope = root(p);
            if (kShape == Shape::sparsemax) slope = p > 0.f ? all(1.f) : p;
            if (kShape == Shape::general) slope = load(scratch + c);
            if (wants_alpha)
                alphas += alpha_slope(p, slope, load(scratch + block.columns + c), epsilon) * away;
            store(ds + c, slope == 0.f ? slope : slope * away);
        }
    }
    return sum(alphas);
}

// The same for rows without weights, holes or dropout, whose scores are still raw: two passes do it.
template <Shape kShape>
static void plain_row_gradient(const Block& block, int64_t r, float* x, float* ds,
                               const Limit& limit, float epsilon, const Told* told) {
    const float scale = block.problem->scale;
    vf weighted{}, slopes{};
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Span& span = block.span(r, s);
        for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
            const vf above = rounded(load(x + c) * scale) - limit.whole;
            Value value;
            if constexpr (kShape == Shape::softmax)
                value.p = value.slope = exp_above(above, limit.rest);
            else
                value = value_of<kShape>(above - limit.rest, epsilon);
            vf g = load(ds + c);
            if (c < span.low || c + kWidth > span.high) {
                const vi real = inside(c, span.low, span.high);
                value = {real ? value.p : vf{}, real ? value.slope : vf{}};
                g = real ? g : vf{};
                store(ds + c, g);
            }
            weighted += value.slope * g;
            slopes += value.slope;
            store(x + c, value.p);
        }
    }
    const float total = sum(slopes);
    const float mean = mean_of(sum(weighted), total, told);
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Span& span = block.span(r, s);
        for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
            vf slope = load(x + c);
            if (kShape == Shape::entmax15) slope = root(slope);
            if (kShape == Shape::sparsemax) slope = slope > 0.f ? all(1.f) : slope;
            const vf found = slope * (load(ds + c) - mean) * scale;
            store(ds + c, slope == 0.f ? slope : found);
        }
    }
}

LONGSPAN_INLINE Told mean_from_output(const Block& block, int64_t row, const float* grad) {
    const float* y = block.problem->out.at(block.b, block.h, row);
    double dot = 0, size = 0;
    for (int64_t d = 0; d < block.problem->v.size; d++) {
        const double part = static_cast<double>(y[d]) * grad[d];
        dot += part;
        size += std::fabs(part);
    }
    return {static_cast<float>(dot), static_cast<float>(2 * size * block.problem->rounding)};
}

// So large a limit has no digits for what pairs of equal scores add to it: it is found anew, but in rows
// that have pairs in other walks.
constexpr double kFar = 1e8;

// The limit of a row whose scores are finished, counted from the largest.
static float limit_from_top(const Block& block, int64_t r, const float* x, float top,
                            const Normalizer& normalizer) {
    if (normalizer.shape != Shape::softmax)
        return limit_of_row(block, r, x, top, normalizer, 0).limit;
    vf totals{};
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Span& span = block.span(r, s);
        for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth)
            totals += exp(load(x + c) - top);
    }
    return std::log(sum(totals));
}

static void backward_block(const Problem& problem, Workspace& w, int64_t walk, int64_t b, int64_t h,
                           int64_t first, int64_t last) {
    Block block = open_block(problem, w, walk, b, h, first, last);
    const bool fills = problem.fills_rows && walk == 0;
    if (block.segment_count == 0) {
        for (int64_t r = 0; fills && r < block.rows; r++)
            std::memset(problem.dq.at(b, h, block.row_of(r)), 0, problem.q.size * sizeof(float));
        return;
    }
    const int64_t q_width = padded(problem.q.size);
    for (int64_t s = 0; s < block.segment_count; s++) {
        const Segment& segment = block.segments[s];
        const int rows = in_place(*segment.panels, problem.k) ? 0 : kKeyRows;
        pack(*segment.panels, problem, segment.slot, segment.end(),
             needs(block, segment, false) | needs(block, segment, true) | rows | kKeysChecked |
                 kValuesChecked);
    }
    Ahead ahead;
    look_ahead(block, ahead, problem.dq, &problem.grad);
    float* scores = w.scores.room<float>(kBlock * block.stride + kWidth);
    float* gradients = w.gradients.room<float>(kBlock * block.stride + kWidth);
    float* dq = w.outputs.room<float>(kBlock * q_width);
    const RowsInPlace queries = block_rows(block, problem.q, w.queries);
    const RowsInPlace grads = block_rows(block, problem.grad, w.grads);
    block.finite = !has_broken(block) && !has_broken(block, queries, problem.q.size) &&
                   !has_broken(block, grads, problem.v.size);
    uint8_t* seen = nullptr;
    if (!block.finite) {
        seen = w.seen.room<uint8_t>(kBlock * block.stride + kWidth);
        std::memset(seen, 0, kBlock * block.stride);
    }
    meet(block, queries, problem.q.size, false, scores);
    meet(block, grads, problem.v.size, true, gradients);
    relate(block, queries);
    if (block.related != nullptr) {
        block.related_gradients = w.related_gradients.room<float>(kBlock * block.stride + kWidth);
        std::memset(block.related_gradients, 0, kBlock * block.stride * sizeof(float));
    }
    const float alpha = alpha_of(problem, h);
    const Normalizer normalizer = normalizer_of(alpha);
    const bool several = multiplies(problem);
    const bool plain = problem.alpha_gradient == nullptr &&
                       normalizer.shape != Shape::general && is_plain(block);
    float* saved = nullptr;
    for (int64_t t = 0; t < problem.term_count; t++)
        if (problem.terms[t].kind == Kind::bell_score)
            saved = w.saved.room<float>(problem.term_count * block.columns + kWidth);
    for (int64_t r = 0; r < block.rows; r++) {
        const int64_t row = block.row_of(r);
        float *x = scores + r * block.stride, *ds = gradients + r * block.stride;
        const double known = problem.limits.at(b, h, row);
        Limit limit = split(known);
        const bool far = std::fabs(known) > kFar && !problem.merged;
        if (plain && known != -INFINITY && !far) {
            Told mean{};
            if (problem.merged) mean = mean_from_output(block, row, grads.data + r * grads.row);
            const Told* told = problem.merged ? &mean : nullptr;
            if (normalizer.shape == Shape::softmax)
                plain_row_gradient<Shape::softmax>(block, r, x, ds, limit, 0, told);
            else if (normalizer.shape == Shape::entmax15)
                plain_row_gradient<Shape::entmax15>(block, r, x, ds, limit, 0.5f, told);
            else
                plain_row_gradient<Shape::sparsemax>(block, r, x, ds, limit, 1.f, told);
            clear_outside(block, r, x, true);
            clear_outside(block, r, ds, true);
            continue;
        }
        const float top = finish_scores(
            block, r, x, saved, seen == nullptr ? nullptr : seen + r * block.stride);
        if (top == -INFINITY) {
            for (int64_t s = 0; s < block.segment_count; s++) {
                const Span& span = block.span(r, s);
                for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
                    store(x + c, vf{});
                    store(ds + c, vf{});
                }
            }
            clear_outside(block, r, x, true);
            clear_outside(block, r, ds, true);
            continue;
        }
        if (far) limit = {top, limit_from_top(block, r, x, top, normalizer)};
        float* kept = nullptr;
        if (several) {
            kept = w.kept.room<float>(2 * block.columns + 2 * kWidth);
            for (int64_t s = 0; s < block.segment_count; s++)
                if (block.span(r, s).high > block.span(r, s).low)
                    find_multipliers(block, r, block.segments[s], block.span(r, s), kept);
        }
        Told mean{};
        const Told* told = nullptr;
        if (problem.merged) {
            mean = mean_from_output(block, row, grads.data + r * grads.row);
            told = &mean;
        }
        // A factor's gradient needs the plain one, which is about to be overwritten.
        float* before = nullptr;
        bool factors = false;
        for (int64_t t = 0; t < problem.term_count; t++)
            factors |= problem.terms[t].kind == Kind::bell_weight;
        if (factors) {
            before = kept + block.columns + kWidth;
            for (int64_t s = 0; s < block.segment_count; s++) {
                const Span& span = block.span(r, s);
                for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth)
                    store(before + c, load(ds + c));
            }
        }
        const bool wants_alpha = problem.alpha_gradient != nullptr;
        double to_alpha = 0;
        switch (normalizer.shape) {
            case Shape::softmax:
                to_alpha = row_gradient<Shape::softmax>(block, r, x, ds, kept, limit,
                                                        wants_alpha ? alpha - 1 : 0, told, wants_alpha);
                break;
            case Shape::entmax15:
                to_alpha = row_gradient<Shape::entmax15>(block, r, x, ds, kept, limit, 0.5f, told,
                                                         wants_alpha);
                break;
            case Shape::sparsemax:
                to_alpha = row_gradient<Shape::sparsemax>(block, r, x, ds, kept, limit, 1.f, told,
                                                          wants_alpha);
                break;
            default:
                to_alpha = row_gradient<Shape::general>(block, r, x, ds, kept, limit,
                                                        normalizer.epsilon, told, wants_alpha);
        }
        if (wants_alpha) problem.alpha_gradient[b * problem.heads + h] += to_alpha;
        if (several) {
            for (int64_t s = 0; s < block.segment_count; s++) {
                const Span& span = block.span(r, s);
                for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
                    const vf p = load(x + c);
                    store(x + c, p == 0.f ? p : p * load(kept + c));
                }
            }
        }
        for (int64_t t = problem.term_count - 1; t >= 0; t--) {
            const Term& term = problem.terms[t];
            double total = 0, alone = 0;
            for (int64_t s = 0; s < block.segment_count; s++) {
                const Segment& segment = block.segments[s];
                const Span& span = block.span(r, s);
                if (span.high <= span.low || !acts(segment, term)) continue;
                if (term.kind == Kind::bell_weight) {
                    if (term.value_gradient.data == nullptr) continue;
                    const float* positions =
                        segment.panels->positions.room<float>(0) + segment.slot - segment.column;
                    vf sums{}, sums_alone{};
                    for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth) {
                        const vf d = distance_of(positions, c, block.position_of(r));
                        const vf a = load(x + c), g = a == 0.f ? a : a * load(before + c);
                        sums += g * (d * d);
                        sums_alone += g;
                    }
                    total += sum(sums);
                    alone += sum(sums_alone);
                    continue;
                }
                const float* own = saved == nullptr ? nullptr : saved + t * block.columns;
                const bool score = term.kind == Kind::bell_score;
                if (term.normalized && (score || term.kind == Kind::bell_bias))
                    alone += plain_sum(span, ds, score ? own : nullptr);
                apply_backward(block, term, r, segment, span, own, ds, total);
            }
            add_total(block, term, row, total, alone);
        }
        for (int64_t s = 0; s < block.segment_count; s++) {
            const Span& span = block.span(r, s);
            for (int64_t c = down(span.low, kWidth); c < span.high; c += kWidth)
                store(ds + c, load(ds + c) * problem.scale);
        }
        clear_outside(block, r, x, true);
        clear_outside(block, r, ds, true);
    }
    collect(block, gradients, false, dq, seen);
    relate_backward(block, queries, dq);
    for (int64_t r = 0; r < block.rows; r++) {
        float* to = problem.dq.at(b, h, block.row_of(r));
        const float* own = dq + r * q_width;
        for (int64_t d = 0; d < problem.q.size; d++) to[d] = fills ? own[d] : to[d] + own[d];
    }
    spread(block, gradients, queries, problem.q.size, false, seen);
    spread(block, scores, grads, problem.v.size, true, seen);
}

// Adds the sums of a walk's panels to the gradients of their keys.
static void write_sums(const Problem& problem, Workspace& w, int64_t walk, int64_t b, int64_t h) {
    for (int p = 0; p < w.panel_count; p++) {
        const bool fills = problem.fills_keys && walk == 0 && p == 0;
        Panels& panels = w.panels[p];
        for (int values = 0; values < 2; values++) {
            const Vectors& to = values ? problem.dv : problem.dk;
            const int64_t width = padded(to.size);
            const float* sums = (values ? panels.dv : panels.dk).room<float>(0);
            for (int64_t s = 0; s < panels.order.length; s++) {
                float* row = to.at(b, h, panels.order.at(b, s));
                const float* own = sums + s * width;
                for (int64_t d = 0; d < to.size; d++) row[d] = fills ? own[d] : row[d] + own[d];
            }
        }
    }
}

static void backward(const Problem& problem, const BackwardTask& task, void* workspace) {
    Workspace& w = *static_cast<Workspace*>(workspace);
    const int64_t each = problem.heads / problem.key_heads;
    for (int64_t b = task.first; b < task.last; b++)
        for (int64_t key_head = task.low; key_head < task.high; key_head++)
            for (int64_t walk = 0; walk < problem.walk_count; walk++) {
                open_panels(w, problem, walk, b, key_head, true);
                const Walk& own = problem.walks[walk];
                for (int64_t h = key_head * each; h < (key_head + 1) * each; h++) {
                    if (own.place[h] < 0) continue;
                    for (int64_t first = 0; first < own.queries.length; first += kBlock)
                        backward_block(problem, w, walk, b, h, first, own.queries.length);
                    write_encodings(problem, w);
                }
                write_sums(problem, w, walk, b, key_head);
            }
}

// --- workspaces, as the threads take them ---

static void* open() { return new Workspace(); }

// Forgets what is packed: the tensors of another call may lie at the same address.
static void reset(void* workspace) {
    Workspace* w = static_cast<Workspace*>(workspace);
    w->walk = w->encodings_head = -1;
}

static void close(void* workspace) {
    Workspace* w = static_cast<Workspace*>(workspace);
    for (Panels& panels : w->panels)
        for (Buffer* buffer : {&panels.keys, &panels.values, &panels.key_rows, &panels.value_rows,
                               &panels.positions, &panels.ready, &panels.dk, &panels.dv})
            buffer->release();
    for (Buffer* buffer : {&w->encodings.keys, &w->encodings.key_rows, &w->encodings.ready,
                           &w->encodings.dk, &w->related, &w->related_gradients, &w->shifted,
                           &w->turned_queries, &w->related_sums, &w->segments, &w->scores, &w->gradients, &w->spans, &w->groups, &w->queries, &w->grads,
                           &w->outputs, &w->alive, &w->kept, &w->seen, &w->saved, &w->chosen})
        buffer->release();
    delete w;
}
