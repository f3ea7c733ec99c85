// Which instruction-set level of the kernels this processor runs.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

#include "deployops/operator_table.h"

namespace deployops {

// The index of a level by its name; throws InputError where the library or the processor has no such level.
inline size_t find_level(const char* name) {
  const Table<LevelSpec> levels = level_table();
  std::string known;
  for (size_t k = 0; k < levels.count; ++k) {
    if (std::strcmp(levels[k].name, name) == 0) {
      require(levels[k].supported(), "this processor does not run the kernels of level `", name, "`");
      return k;
    }
    known += (k ? ", " : "") + std::string(levels[k].name);
  }
  throw InputError("there are no kernels of level `" + std::string(name) + "`; the library has " + known);
}

// The best level that this processor runs, or the one that DEPLOYOPS_CPU_LEVEL names.
inline size_t chosen_level() {
  const char* asked = std::getenv("DEPLOYOPS_CPU_LEVEL");
  if (asked != nullptr && *asked != '\0') return find_level(asked);
  const Table<LevelSpec> levels = level_table();
  size_t k = levels.count - 1;
  while (k > 0 && !levels[k].supported()) --k;
  return k;
}

}  // namespace deployops
