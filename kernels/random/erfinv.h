#pragma once
// erfinv(x) for -1 < x < 1 in float32: M. Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011), single
// precision; the approximation that JAX's erf_inv uses too. x times a polynomial, the highest power first: with
// w = -log(1 - x^2), of w - 2.5 where w < 5, of sqrt(w) - 3 elsewhere. Macros, as constants in memory are another thing to
// each compiler of kernels.

#define QT_ERFINV_CENTRE                                                               \
  2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f, 0.00021858087f, \
      -0.00125372503f, -0.00417768164f, 0.246640727f, 1.50140941f
#define QT_ERFINV_TAIL                                                                \
  -0.000200214257f, 0.000100950558f, 0.00134934322f, -0.00367342844f, 0.00573950773f, \
      -0.0076224613f, 0.00943887047f, 1.00167406f, 2.83297682f
