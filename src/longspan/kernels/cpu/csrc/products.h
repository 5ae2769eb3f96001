// Matrix products of blocks: C (+)= A B, A by any strides, B and C by rows of whole vectors.

// MR rows by NV vectors, which stay in registers. What was in C is added last: a long sum is one of
// parts, and keeps more digits than term by term.
template <int MR, int NV, bool kAdd>
LONGSPAN_INLINE void micro(int64_t depth, const float* __restrict a, int64_t a_row, int64_t a_step,
                           const float* __restrict b, int64_t b_row, float* __restrict c,
                           int64_t c_row) {
    vf sums[MR][NV];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) sums[i][v] = vf{};
    for (int64_t k = 0; k < depth; k++) {
        vf row[NV];
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) row[v] = load(b + k * b_row + v * kWidth);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const float x = a[i * a_row + k * a_step];
#pragma GCC unroll 4
            for (int v = 0; v < NV; v++) sums[i][v] += x * row[v];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) {
            float* to = c + i * c_row + v * kWidth;
            store(to, kAdd ? load(to) + sums[i][v] : sums[i][v]);
        }
}

template <int NV, bool kAdd>
static void micro_rows(int64_t rows, int64_t depth, const float* a, int64_t a_row, int64_t a_step,
                       const float* b, int64_t b_row, float* c, int64_t c_row) {
    int64_t i = 0;
    for (; i + kRows <= rows; i += kRows)
        micro<kRows, NV, kAdd>(depth, a + i * a_row, a_row, a_step, b, b_row, c + i * c_row, c_row);
    for (; i + 2 <= rows; i += 2)
        micro<2, NV, kAdd>(depth, a + i * a_row, a_row, a_step, b, b_row, c + i * c_row, c_row);
    for (; i < rows; i++)
        micro<1, NV, kAdd>(depth, a + i * a_row, a_row, a_step, b, b_row, c + i * c_row, c_row);
}

// C (rows x columns) (+)= A (rows x depth) B (depth x columns); columns are whole vectors.
template <bool kAdd>
static void product(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_row,
                    int64_t a_step, const float* b, int64_t b_row, float* c, int64_t c_row) {
    int64_t j = 0;
    for (; j + 2 * kWidth <= columns; j += 2 * kWidth)
        micro_rows<2, kAdd>(rows, depth, a, a_row, a_step, b + j, b_row, c + j, c_row);
    for (; j < columns; j += kWidth)
        micro_rows<1, kAdd>(rows, depth, a, a_row, a_step, b + j, b_row, c + j, c_row);
}
