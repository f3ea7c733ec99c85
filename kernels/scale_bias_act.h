// activation(scale·x + bias) with one scale and one bias per channel, in one pass.
//
// How far off the result is, in ULP, for z = scale·x + bias as it was rounded: none and relu 0; leaky_relu 0.5;
// sigmoid and silu 2.5; tanh 2.7; gelu 4.5 in float and 5.5 in double, without fma 5 and 7; gelu_tanh 12 and 25, without
// fma 50 and 400. Halves: 0.55.
#pragma once

#include <string_view>

#include "deployops/channels.h"
#include "deployops/elementwise.h"
#include "deployops/tensor.h"
#include "deployops/vector_math.h"

namespace deployops {

template <class T>
void scale_bias_act(const Parallel& par, In<T> x, In<T> scale, In<T> bias, std::string_view activation, int64_t axis,
                    double slope, Out<T> y) {
  using W = wide_t<T>;
  using V = vec<W>;
  const int channel = check_axis(x, axis);
  auto check = [&](const char* name, In<T> v) {
    require(v.rank == 1, name, " has ", v.rank, " dimensions; expected 1, one number per channel");
    require(v.size(0) == x.size(channel), name, " holds ", v.size(0), " numbers; x has ", x.size(channel),
            " channels (dimension ", axis, ")");
  };
  check("scale", scale);
  if (bias) check("bias", bias);
  RepeatedLayout<3> layout;
  add_channel_dimensions(layout, x, channel, {true, false, false}, {true, true, bool(bias)});
  const T nothing = T(W(-0.0));  // what can be added to every number and leaves it, −0 too

  auto run = [&](auto cost, auto act) {
    elementwise<decltype(cost)::value>(
        par, layout, y.data, [act](V v, V s, V b) { return act(fma(v, s, b)); }, x.data, scale.data,
        bias ? bias.data : &nothing);
  };
  const std::integral_constant<Cost, Cost::memory> cheap{};
  const std::integral_constant<Cost, Cost::arithmetic> costly{};
  if (activation == "none") {
    run(cheap, [](V z) { return z; });
  } else if (activation == "relu") {
    run(cheap, [](V z) { return at_least(z, W(0)); });
  } else if (activation == "leaky_relu") {
    const W below = W(slope);
    run(cheap, [below](V z) { return z > W(0) ? z : z * below; });
  } else if (activation == "sigmoid") {
    run(costly, [](V z) { return logistic<T>(z); });
  } else if (activation == "tanh") {
    run(costly, [](V z) { return tanh<T>(z); });
  } else if (activation == "silu") {
    run(costly, [](V z) { return times_logistic<T>(z, z); });
  } else if (activation == "gelu") {
    run(costly, [](V z) { return gelu<T>(z); });
  } else if (activation == "gelu_tanh") {
    run(costly, [](V z) { return gelu_tanh<T>(z); });
  } else {
    require(false, "activation = '", activation,
            "' is not known; known are none, relu, leaky_relu, sigmoid, tanh, silu, gelu, gelu_tanh");
  }
}

}  // namespace deployops
