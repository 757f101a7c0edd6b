// Kernels beside plain loops of the same work, for callgrind to count: ptx_instructions <PTX>.
#include <valgrind/callgrind.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "ptx_memory.hpp"

namespace {

namespace ptx = simulate_gpus::ptx;

constexpr int elements = 1 << 16, edge = 64, rows = 64, columns = 1000;

void vector_add(const float* x, const float* y, float* sum) {
  for (int i = 0; i < elements; ++i) sum[i] = x[i] + y[i];
}

void product(const float* a, const float* b, float* c) {
  std::fill_n(c, edge * edge, 0.0F);
  for (int i = 0; i < edge; ++i)
    for (int k = 0; k < edge; ++k)
      for (int j = 0; j < edge; ++j) c[i * edge + j] += a[i * edge + k] * b[k * edge + j];
}

void reduction(const float* x, float* sum) {
  *sum = 0;
  for (int i = 0; i < elements; ++i) *sum += x[i];
}

void softmax(const float* x, float* y) {
  for (int r = 0; r < rows; ++r, x += columns, y += columns) {
    float best = x[0], sum = 0;
    for (int i = 1; i < columns; ++i) best = std::max(best, x[i]);
    for (int i = 0; i < columns; ++i) sum += std::exp(x[i] - best);
    for (int i = 0; i < columns; ++i) y[i] = std::exp(x[i] - best) / sum;
  }
}

template <class F>
void count(const std::string& name, F&& work) {
  CALLGRIND_START_INSTRUMENTATION;
  work();
  CALLGRIND_STOP_INSTRUMENTATION;
  CALLGRIND_DUMP_STATS_AT(name.c_str());
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  bytes.resize((bytes.size() + sizeof value - 1) / sizeof value * sizeof value + sizeof value);
  std::memcpy(bytes.data() + bytes.size() - sizeof value, static_cast<const void*>(&value),
              sizeof value);
}

class Counted {
 public:
  explicit Counted(const std::string& text) : module_(memory_.load(text)) {}

  float* numbers(std::size_t count) {
    return reinterpret_cast<float*>(memory_.allocate(count * sizeof(float)).host);
  }

  // Whether the kernel's `results` numbers at `to` are near those of the loop.
  template <class F, class... Arguments>
  bool run(const std::string& name, ptx::Dimensions grid, ptx::Dimensions block, float* to,
           int results, F&& loop, Arguments... arguments) {
    ptx::Launch launch{.kernel = name, .grid = grid, .block = block, .threads = 1};
    (append(launch.parameters, arguments), ...);
    module_->resolve(name);
    std::vector<float> expected(static_cast<std::size_t>(results));
    count(name + " kernel", [&] { module_->launch(launch); });
    count(name + " loop", [&] { loop(expected.data()); });
    for (std::size_t k = 0; k < expected.size(); ++k)
      if (!(std::abs(to[k] - expected[k]) <= 1e-3F)) return false;
    return true;
  }

 private:
  TestMemory memory_ = {};
  std::shared_ptr<ptx::Module> module_;
};

}  // namespace

int main(int, char** arguments) {
  std::ifstream file(arguments[1]);
  Counted counted(std::string(std::istreambuf_iterator<char>(file), {}));
  float* const x = counted.numbers(elements);
  float* const y = counted.numbers(elements);
  float* const to = counted.numbers(elements);
  for (int i = 0; i < elements; ++i) {
    x[i] = std::sin(static_cast<float>(i) * 0.37F);
    y[i] = std::cos(static_cast<float>(i) * 0.11F);
  }
  const std::uint32_t tiles = edge / 16;
  bool is_right = counted.run(
      "vector_add", {elements / 256}, {256}, to, elements,
      [&](float* sum) { vector_add(x, y, sum); }, x, y, to, elements);
  is_right &= counted.run(
      "product", {tiles, tiles}, {16, 16}, to, edge * edge, [&](float* c) { product(x, y, c); }, x,
      y, to, edge);
  *to = 0;
  is_right &= counted.run(
      "reduction", {8}, {256}, to, 1, [&](float* sum) { reduction(x, sum); }, x, to, elements);
  is_right &= counted.run(
      "softmax", {rows}, {128}, to, rows * columns, [&](float* result) { softmax(x, result); }, x,
      to, columns);
  if (!is_right) std::puts("a kernel's results are not those of its loop");
  return is_right ? 0 : 1;
}
