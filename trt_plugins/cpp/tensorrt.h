// TensorRT's headers, without the warnings that they give.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include "NvInferRuntime.h"
#pragma GCC diagnostic pop
