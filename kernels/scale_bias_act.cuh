// activation(scale·x + bias) with one scale and one bias per channel, in one pass over x.
#pragma once

#include <string_view>

#include "deployops/cuda/channels.h"
#include "deployops/cuda/math.h"

namespace deployops {

constexpr int scale_bias_act_tactics = elementwise_tactics;

namespace detail {

enum class Activation { none, relu, leaky_relu, sigmoid, tanh, silu, gelu, gelu_tanh };

// One kernel for all activations: which one it is, is the same for every thread.
template <class W>
struct ScaleBiasAct {
  Activation activation;
  W slope;
  bool has_bias;

  __device__ W operator()(W v, W scale, W bias) const { return activate(has_bias ? fma_of(v, scale, bias) : v * scale); }
  __device__ W activate(W z) const {
    switch (activation) {
      case Activation::none: return z;
      case Activation::relu: return at_least_zero(z);
      case Activation::leaky_relu: return z > 0 ? z : z * slope;
      case Activation::sigmoid: return logistic(z);
      case Activation::tanh: return tanh_of(z);
      case Activation::silu: return z * logistic(z);
      case Activation::gelu: return gelu(z);
      case Activation::gelu_tanh: return gelu_tanh(z);
    }
    return z;
  }
};

inline Activation activation_named(std::string_view name) {
  constexpr std::string_view names[] = {"none", "relu", "leaky_relu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh"};
  for (int k = 0; k < 8; ++k) {
    if (names[k] == name) return Activation(k);
  }
  require(false, "activation = '", name,
          "' is not known; known are none, relu, leaky_relu, sigmoid, tanh, silu, gelu, gelu_tanh");
  return Activation::none;
}

}  // namespace detail

template <class T>
cudaError_t scale_bias_act(Stream stream, In<T> x, In<T> scale, In<T> bias, std::string_view activation, int64_t axis,
                           double slope, Out<T> y) {
  using W = wide_t<T>;
  const int channel = check_axis(x, axis);
  auto check = [&](const char* name, In<T> v) {
    require(v.rank == 1, name, " has ", v.rank, " dimensions; expected 1, one number per channel");
    require(v.size(0) == x.size(channel), name, " holds ", v.size(0), " numbers; x has ", x.size(channel),
            " channels (dimension ", axis, ")");
  };
  check("scale", scale);
  if (bias) check("bias", bias);
  OperandDims<3> dims;
  add_channel_dimensions(dims, x, channel, {true, false, false}, {true, true, true});
  const detail::ScaleBiasAct<W> f{detail::activation_named(activation), W(slope), bool(bias)};
  return elementwise(stream, dims, y.data, f, x.data, scale.data, bias ? bias.data : scale.data);
}

}  // namespace deployops
