#include "messages.h"

#include <atomic>
#include <cstdio>

namespace deployops::trt {
namespace {
std::atomic<nvinfer1::ILoggerFinder*> logger_finder{nullptr};
}

void use_logger_finder(nvinfer1::ILoggerFinder* finder) { logger_finder = finder; }

void report_error(const std::string& text) noexcept {
  nvinfer1::ILoggerFinder* const finder = logger_finder;
  nvinfer1::ILogger* const logger = finder == nullptr ? nullptr : finder->findLogger();
  if (logger != nullptr) {
    logger->log(nvinfer1::ILogger::Severity::kERROR, text.c_str());
  } else {
    std::fprintf(stderr, "[deployops] %s\n", text.c_str());
  }
}

}  // namespace deployops::trt
