// The kernels for AVX-512.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <utility>
#include <immintrin.h>
#include "problem.h"

#define LONGSPAN_WIDTH 16

namespace longspan {
namespace {

// Rows that a product keeps in registers.
constexpr int64_t kRows = 8;

#include "vectors.h"
#include "products.h"
#include "normalizers.h"
#include "philox.h"
#include "workspace.h"
#include "ahead.h"
#include "block.h"
#include "weights.h"
#include "attention.h"
#include "forward.h"
#include "backward.h"
#include "rows.h"
#include "dropout.h"

}  // namespace

extern const Kernels kAvx512 = {"avx512", open, reset, close, forward, backward, entmax, entmax_backward, dropout};

}  // namespace longspan
