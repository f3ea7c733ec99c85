// Says by which text TensorRT's timing cache knows each plugin of a library: "name: id".
#include "host.h"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  int32_t creators_there = 0;
  load(arguments[1], creators_there);
  for (const auto& [name, creator] : creators) say(name, build(make(name)).getTimingCacheID());
}
