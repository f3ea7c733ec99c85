// Stands in for CUDA's header of that name: kernels are compiled for the processor and run by the emulation.
#pragma once

#include <math.h>  // not <cmath> alone: sin(float) without a namespace is the one of float, as in CUDA

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "emulation/vector_types.h"

#include "emulation/keywords.h"

#include "emulation/atomics.h"
#include "emulation/device_math.h"
#include "emulation/launch.h"
#include "emulation/warp.h"
