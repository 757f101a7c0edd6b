// SPDX-License-Identifier: MIT
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <span>

#include "dispatch/symbols.hpp"

namespace use_gpu::detail {
namespace {

std::string file_name(const char* path) {
  return path == nullptr ? "" : std::filesystem::path(path).filename().string();
}

// The entries that enclose one, which comes first.
class Scopes {
 public:
  explicit Scopes(Dwarf_Die& entry) : count_(dwarf_getscopes_die(&entry, &scopes_)) {}
  Scopes(Dwarf_Die& unit, Dwarf_Addr address) : count_(dwarf_getscopes(&unit, address, &scopes_)) {}
  ~Scopes() { std::free(scopes_); }
  Scopes(const Scopes&) = delete;
  Scopes& operator=(const Scopes&) = delete;

  [[nodiscard]] std::span<Dwarf_Die> all() const {
    return {scopes_, count_ < 0 ? 0 : static_cast<std::size_t>(count_)};
  }

 private:
  Dwarf_Die* scopes_ = nullptr;
  int count_;
};

// The entry that declares a function: what an inlined or a separate definition refers to.
Dwarf_Die declaration_of(Dwarf_Die entry) {
  Dwarf_Attribute reference;
  Dwarf_Die next;
  while ((dwarf_attr(&entry, DW_AT_abstract_origin, &reference) != nullptr ||
          dwarf_attr(&entry, DW_AT_specification, &reference) != nullptr) &&
         dwarf_formref_die(&reference, &next) != nullptr) {
    entry = next;
  }
  return entry;
}

// The mangled name; for a function that only its file knows, the names of what encloses it.
std::string function_name(Dwarf_Die function) {
  Dwarf_Attribute attribute;
  if (dwarf_attr_integrate(&function, DW_AT_linkage_name, &attribute) != nullptr) {
    return dwarf_formstring(&attribute);
  }
  Dwarf_Die declaration = declaration_of(function);
  const Scopes enclosing(declaration);
  std::string name;
  for (Dwarf_Die& scope : enclosing.all()) {
    if (dwarf_tag(&scope) == DW_TAG_compile_unit) break;
    const char* const own = dwarf_diename(&scope);
    const std::string part = own != nullptr ? own : "(anonymous)";
    name = name.empty() ? part : part + "::" + name;
  }
  return name;
}

struct Place {
  std::string file;
  int line = 0;
};

Place place_at(Dwarf_Die& unit, Dwarf_Addr address) {
  Place place;
  if (Dwarf_Line* const line = dwarf_getsrc_die(&unit, address)) {
    dwarf_lineno(line, &place.line);
    place.file = file_name(dwarf_linesrc(line, nullptr, nullptr));
  }
  return place;
}

Dwarf_Word number(Dwarf_Die& entry, unsigned name) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  dwarf_formudata(dwarf_attr(&entry, name, &attribute), &value);
  return value;
}

// Where an inlined function was called.
Place call_of(Dwarf_Die& inlined, Dwarf_Die& unit) {
  Dwarf_Files* files = nullptr;
  std::size_t count = 0;
  if (dwarf_getsrcfiles(&unit, &files, &count) != 0) return {};
  return {file_name(dwarf_filesrc(files, number(inlined, DW_AT_call_file), nullptr, nullptr)),
          static_cast<int>(number(inlined, DW_AT_call_line))};
}

// The compilation unit of an address; `bias` is what its debug information must add to its own.
Dwarf_Die* find_unit(Dwfl_Module* module, Dwarf_Addr address, Dwarf_Addr& bias) {
  Dwarf_Die* unit = dwfl_module_addrdie(module, address, &bias);
  if (unit != nullptr) return unit;
  do {  // Clang writes no table of addresses
    unit = dwfl_module_nextcu(module, unit, &bias);
  } while (unit != nullptr && dwarf_haspc(unit, address - bias) != 1);
  return unit;
}

}  // namespace

struct Symbols::Reader {
  // Debug information of other files is not looked for: that may ask servers.
  Dwfl_Callbacks callbacks{
      .find_elf = dwfl_linux_proc_find_elf,
      .find_debuginfo = [](Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                           GElf_Word, char**) { return -1; },
      .section_address = nullptr,
      .debuginfo_path = nullptr};
  std::unique_ptr<Dwfl, decltype(&dwfl_end)> process{dwfl_begin(&callbacks), &dwfl_end};
};

Symbols::Symbols() : reader_(std::make_unique<Reader>()) {
  dwfl_linux_proc_report(reader_->process.get(), getpid());
  dwfl_report_end(reader_->process.get(), nullptr, nullptr);
}
Symbols::~Symbols() = default;

std::vector<Frame> Symbols::frames_at(std::uintptr_t address) const {
  Frame outer;
  Dwfl_Module* const module = dwfl_addrmodule(reader_->process.get(), address);
  if (module == nullptr) return {outer};
  Dwarf_Addr start = 0;
  outer.object = file_name(
      dwfl_module_info(module, nullptr, &start, nullptr, nullptr, nullptr, nullptr, nullptr));
  outer.offset = address - start;
  GElf_Sym symbol;
  GElf_Off offset = 0;
  const char* const name =
      dwfl_module_addrinfo(module, address, &offset, &symbol, nullptr, nullptr, nullptr);
  if (name != nullptr && offset < symbol.st_size) {  // else it is only the nearest function
    outer.function = name;
    outer.offset = offset;
  }

  Dwarf_Addr bias = 0;
  Dwarf_Die* const unit = find_unit(module, address, bias);
  if (unit == nullptr) return {outer};
  std::vector<Frame> frames;
  Place place = place_at(*unit, address - bias);
  // The scopes of an address lead from an inlined function to where that is declared; those of its
  // entry lead to the function that it is inlined in.
  const Scopes scopes(*unit, address - bias);
  if (!scopes.all().empty()) {
    const Scopes callers(scopes.all().front());
    for (Dwarf_Die& scope : callers.all()) {
      if (dwarf_tag(&scope) != DW_TAG_inlined_subroutine) continue;
      frames.push_back({function_name(scope), place.file, place.line, outer.object});
      place = call_of(scope, *unit);
    }
  }
  outer.file = place.file;
  outer.line = place.line;
  frames.push_back(outer);
  return frames;
}

}  // namespace use_gpu::detail
