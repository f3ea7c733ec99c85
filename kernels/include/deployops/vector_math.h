// Mathematical functions of vectors: no branches, the same code for every instruction set.
#pragma once

#include "deployops/cbrt.h"
#include "deployops/exp.h"
#include "deployops/gelu.h"
#include "deployops/logistic.h"
