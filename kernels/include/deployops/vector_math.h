// Mathematical functions of vectors: no branches, the same code for every instruction set.
//
// How far off a result was at most, in ULP: for float over all 2^32 numbers, against float64; for double over a million,
// against 113 binary digits. The bounds that the functions state, and that tests hold, leave some room.
//
//                     with fma                without (SSE2)
//                     float      double       float      double
//   exp               1.06       1.03         1.03       1.01
//   logistic          2.41       2.25         2.41       2.25
//   times_logistic    2.45       2.08         2.45       2.08
//   tanh              2.50       2.49         2.50       2.49
//   gelu              4.17       4.61         4.87       5.22
//   gelu_tanh         11.3       21.3         40.9       331
//   cbrt              0.50       0.50002      0.50       0.50002
#pragma once

#include "deployops/cbrt.h"
#include "deployops/exp.h"
#include "deployops/gelu.h"
#include "deployops/logistic.h"
