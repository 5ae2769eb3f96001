// Rows of tensors that are needed soon, fetched a few with every product: there they hide behind the
// arithmetic, where a block's misses in one burst would stop it.

struct Ahead {
    struct Run {
        const float* data;
        int64_t row, size, left;
    };
    Run runs[6];
    int count = 0, at = 0;

    LONGSPAN_HERE void add(const Vectors& x, int64_t b, int64_t h, int64_t first, int64_t rows) {
        if (rows > 0) runs[count++] = {x.at(b, h, first), x.row, x.size, rows};
    }
    // So many rows a step that a block's products are enough for all its rows.
    LONGSPAN_HERE void step() {
        constexpr int64_t kLine = 16;
        for (int n = 0; n < 3 && at < count; n++) {
            Run& run = runs[at];
            for (int64_t d = 0; d < run.size; d += kLine) __builtin_prefetch(run.data + d, 0, 2);
            run.data += run.row;
            if (--run.left == 0) at++;
        }
    }
};
