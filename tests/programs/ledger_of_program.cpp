// SPDX-License-Identifier: MIT
//
// Preloaded into a program that runs on simulated GPUs, it keeps a ledger of the whole program. If
// the CUDA runtime has counted other copies at the end, it reports this and exits with status 3.
// OWN_READS in the environment: how many reads only real kernels do, not those computed on the
// host.
#include <unistd.h>
#include <use_gpu/transfers.hpp>

#include <cstdio>
#include <cstdlib>

#include "simulated_runtime.hpp"

namespace use_gpu {
namespace {

struct WholeProgram {
  // Never closed: at exit LibTorch's thread-local state is destroyed before this.
  const TransferLedger& ledger = *new TransferLedger;

  ~WholeProgram() {
    bool agree = true;
    const auto compare = [&](const std::string& what, std::int64_t ours, std::int64_t runtimes) {
      if (ours == runtimes) return;
      std::fprintf(stderr, "%s: the ledger says %lld, the runtime %lld\n", what.c_str(),
                   static_cast<long long>(ours), static_cast<long long>(runtimes));
      agree = false;
    };
    for (const auto& [kind, row] : {std::pair(TransferDirection::host_to_device, "host to device"),
                                    {TransferDirection::device_to_host, "device to host"},
                                    {TransferDirection::device_to_device, "device to device"}}) {
      const auto [copies, bytes] = ledger.count(kind);
      const bool is_read = kind == TransferDirection::device_to_host && ledger.item_reads() > 0;
      const char* const own = std::getenv("OWN_READS");
      const auto reads = is_read ? ledger.item_reads() - (own ? std::atoi(own) : 0) : 0;
      const std::string name = row;
      compare(name + " copies", copies + reads, test::runtime_count(name + " copies"));
      if (!is_read)
        compare(name + " bytes", static_cast<std::int64_t>(bytes),
                test::runtime_count(name + " bytes"));
    }
    std::fflush(nullptr);
    if (!agree) _exit(3);
  }
} whole_program;

}  // namespace
}  // namespace use_gpu
