// Errors of plugins, told through TensorRT's logger; nothing leaves a plugin as an exception.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "tensorrt.h"
#include "deployops/error.h"

namespace deployops::trt {

void use_logger_finder(nvinfer1::ILoggerFinder* finder);
// On the standard error where TensorRT has given no logger.
void report_error(const std::string& text) noexcept;

// Runs f, which returns a T; what it throws is reported behind `title()`, and `failed` returned.
template <class T, class Title, class F>
T guarded(const Title& title, T failed, F&& f) noexcept {
  const auto report = [&](const char* reason) {
    try {
      report_error(title() + reason);
    } catch (...) {
      report_error("deployops: there is not enough memory for a message");
    }
  };
  try {
    return f();
  } catch (const std::bad_alloc&) {
    report("there is not enough memory");
  } catch (const std::exception& e) {
    report(e.what());
  } catch (...) {
    report("the kernel's launcher threw something that is no std::exception");
  }
  return failed;
}

}  // namespace deployops::trt
