// What the library shows to TensorRT, and all of it.
#include <deque>

#include "messages.h"
#include "plugin.h"

using namespace deployops::trt;

extern "C" [[gnu::visibility("default")]] void setLoggerFinder(nvinfer1::ILoggerFinder* finder) {
  use_logger_finder(finder);
}

extern "C" [[gnu::visibility("default")]] nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& count) {
  static std::deque<Creator> creators;
  static const std::vector<nvinfer1::IPluginCreatorInterface*> pointers = [] {
    std::vector<nvinfer1::IPluginCreatorInterface*> made;
    for (const PluginSpec& spec : plugin_table()) made.push_back(&creators.emplace_back(spec));
    return made;
  }();
  count = int32_t(pointers.size());
  return pointers.data();
}
