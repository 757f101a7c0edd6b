// Chapter cell "cpu(), gpu(), gpu(1)": how devices are named.
// Look at: a GPU can be named on every machine; whether it is there is another question (03, 04).

#include <use_gpu/device.hpp>

#include <iostream>

int main() {
  std::cout << "cpu()   " << use_gpu::cpu() << '\n'
            << "gpu()   " << use_gpu::gpu() << '\n'
            << "gpu(1)  " << use_gpu::gpu(1) << '\n';

  // A device may also come from a command line or a settings file.
  for (const char* name : {"cpu", "gpu:1", "auto"}) {
    std::cout << "parse_device(\"" << name << "\")  " << use_gpu::parse_device(name) << '\n';
  }
}
