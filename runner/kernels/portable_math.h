// Exponentials and angles of single numbers, with the same results on every CPU and with every C library:
// they are computed in float64 by additions, multiplications and divisions alone, and then rounded to
// float32. The float64 result is within 2^-50 of the true one, so the float32 result is the nearest one but
// for one case in millions.
#pragma once

namespace quire::runner::kernels {

float Exp(float x);

// log(1 + exp(x)); x itself above 20.
float Softplus(float x);

// 1 / (1 + exp(-x)), each step rounded to float32.
float Sigmoid(float x);

float Tanh(float x);

struct SineCosine {
  double sine, cosine;
};

// Beyond 2^20 the C library's.
SineCosine SineAndCosine(double angle);

}  // namespace quire::runner::kernels
