// SPDX-License-Identifier: MIT
//
// Memory that runs out where a test wants it: an operator new that replaces the C++ library's, also
// in LibTorch and this library. It can fail for requests of this library's own code, but not for
// LibTorch's. To be included by one source file of a program.
//
//   fault().plant(/*at=*/3, /*for_good=*/false);   // the third allocation from here on fails
//   ...                                            // throws std::bad_alloc, or does without
//   fault().lift();
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace use_gpu::test {

// The owner of the code at an address: ours, other code, or a template or inline function. The
// dynamic linker keeps one copy of these for all libraries, so the caller decides.
enum class Owner { ours, callers, others };

struct Code {
  std::uintptr_t begin, end;
  bool is_ours;  // or else may hold copies that our code uses
};

// The parts of this process where our code, or what it uses inline, may be.
inline const std::vector<Code>& codes() {
  static const auto all = [] {
    std::vector<Code> found;
    const auto add = [](dl_phdr_info* library, std::size_t, void* result) {
      const std::string_view path = library->dlpi_name;
      const auto is = [&](const char* name) { return path.find(name) != path.npos; };
      const bool is_ours = is("/libuse_gpu.so") || is("/libuse_gpu_gpu_info.so");
      if (!is_ours && !path.empty() && !is("/libstdc++.so")) {
        return 0;
      }
      for (const auto& part : std::span(library->dlpi_phdr, library->dlpi_phnum)) {
        const auto begin = library->dlpi_addr + part.p_vaddr;
        if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
        static_cast<std::vector<Code>*>(result)->push_back({begin, begin + part.p_memsz, is_ours});
      }
      return 0;
    };
    ::dl_iterate_phdr(add, &found);
    return found;
  }();
  return all;
}

// In our libraries, code is ours if the linker has no name for it, or a name that is not weak (a
// template's is weak). In the others, code without a name is theirs alone.
inline Owner owner_of(std::uintptr_t address) {
  for (const auto& code : codes()) {
    if (address < code.begin || address >= code.end) continue;
    Dl_info place{};
    ElfW(Sym)* symbol = nullptr;
    ::dladdr1(reinterpret_cast<void*>(address), &place, reinterpret_cast<void**>(&symbol),
              RTLD_DL_SYMENT);
    if (place.dli_sname == nullptr) return code.is_ours ? Owner::ours : Owner::others;
    const bool is_weak = ELF64_ST_BIND(symbol->st_info) != STB_GLOBAL;
    return code.is_ours && !is_weak ? Owner::ours : Owner::callers;
  }
  return Owner::others;
}

// The fault that is planted, and what was seen of it.
class Fault {
 public:
  void plant(int at, bool for_good) {
    static_cast<void>(codes());
    at_ = at;
    for_good_ = for_good;
    seen_ = 0;
    planted_ = true;
  }
  void lift() { planted_ = false; }
  [[nodiscard]] bool happened() const { return seen_ >= at_; }
  /// Memory that our code has asked for while a fault was planted, and not given back.
  [[nodiscard]] std::size_t kept() const { return kept_.size(); }
  void forget_kept() {
    const Inside inside;
    kept_.clear();
    has_kept_ = false;
  }

  void* allocate(std::size_t size, void* caller) {
    const bool counts = planted_ && !t_inside && is_ours(caller);
    if (counts) {
      const int now = ++seen_;
      if (now == at_ || (for_good_ && now > at_)) throw std::bad_alloc();
    }
    void* const memory = std::malloc(std::max<std::size_t>(size, 1));
    if (memory == nullptr) throw std::bad_alloc();
    if (counts) keep(memory);
    return memory;
  }

  void release(void* memory) noexcept {
    if (has_kept_ && !t_inside) {
      const Inside inside;
      const std::lock_guard lock(mutex_);
      kept_.erase(memory);
    }
    std::free(memory);
  }

 private:
  // Allocations of this class itself are not tracked.
  struct Inside {
    Inside() { t_inside = true; }
    ~Inside() { t_inside = false; }
  };

  void keep(void* memory) {
    const Inside inside;
    const std::lock_guard lock(mutex_);
    kept_.insert(memory);
    has_kept_ = true;
  }

  // Walks up from the caller of operator new until the owner is known.
  bool is_ours(void* caller) {
    const Inside inside;
    struct Search {
      Fault* fault;
      void* caller;
      Owner owner = Owner::callers;
    } search{this, caller};
    const auto look = [](_Unwind_Context* frame, void* argument) {
      auto& [fault, first, owner] = *static_cast<Search*>(argument);
      const auto address = _Unwind_GetIP(frame);
      if (first != nullptr && address != reinterpret_cast<std::uintptr_t>(first)) {
        return _URC_NO_REASON;  // a function of this class
      }
      first = nullptr;
      // The address that a call returns to may be in the next function already.
      owner = fault->known_owner_of(address - 1);
      return owner == Owner::callers ? _URC_NO_REASON : _URC_END_OF_STACK;
    };
    _Unwind_Backtrace(look, &search);
    return search.owner == Owner::ours;
  }

  Owner known_owner_of(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = owners_.try_emplace(address, Owner::others);
    if (is_new) found->second = owner_of(address);
    return found->second;
  }

  static inline thread_local bool t_inside = false;

  std::atomic<bool> planted_ = false;
  std::atomic<bool> has_kept_ = false;
  std::atomic<int> seen_ = 0;
  int at_ = 0;
  bool for_good_ = false;
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, Owner> owners_;
  std::unordered_set<void*> kept_;
};

// Never destroyed; made without operator new.
inline Fault& fault() {
  alignas(Fault) static std::byte memory[sizeof(Fault)];
  static Fault* const instance = new (memory) Fault;
  return *instance;
}

}  // namespace use_gpu::test

[[gnu::noinline]] void* operator new(std::size_t size) {
  return use_gpu::test::fault().allocate(size, __builtin_return_address(0));
}
// The C++ library's calls the one above, AddressSanitizer's does not.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return use_gpu::test::fault().allocate(size, __builtin_return_address(0));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { use_gpu::test::fault().release(memory); }
void operator delete(void* memory, std::size_t) noexcept { use_gpu::test::fault().release(memory); }
