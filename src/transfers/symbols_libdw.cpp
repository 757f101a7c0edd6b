// SPDX-License-Identifier: MIT
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "transfers/symbols.hpp"

namespace use_gpu::detail {
namespace {

std::string file_name(const char* path) {
  return path == nullptr ? "" : std::filesystem::path(path).filename().string();
}

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

bool is_namespace_or_class(Dwarf_Die& entry) {
  const int tag = dwarf_tag(&entry);
  return tag == DW_TAG_namespace || tag == DW_TAG_class_type || tag == DW_TAG_structure_type;
}

// The entry's names from its outermost namespace on: "train::Net::forward".
std::string qualified_name(const Dwarf_Die& entry) {
  Dwarf_Die declaration = declaration_of(entry);
  const char* const own = dwarf_diename(&declaration);
  std::string name = own != nullptr ? own : "(anonymous)";
  Dwarf_Die* scopes = nullptr;
  const int count = dwarf_getscopes_die(&declaration, &scopes);
  for (int i = 1; i < count; ++i) {
    const bool is_function = dwarf_tag(&scopes[i]) == DW_TAG_subprogram;
    if (!is_function && !is_namespace_or_class(scopes[i])) continue;
    if (is_function) {  // its own scopes are those of its declaration
      name = qualified_name(scopes[i]) + "::" + name;
      break;
    }
    const char* const scope = dwarf_diename(&scopes[i]);
    name = (scope != nullptr ? scope : std::string("(anonymous)")) + "::" + name;
  }
  std::free(scopes);
  return name;
}

// The mangled name; or, for what only its file knows, the qualified one.
std::string function_name(Dwarf_Die function) {
  Dwarf_Attribute attribute;
  const char* const mangled =
      dwarf_formstring(dwarf_attr_integrate(&function, DW_AT_linkage_name, &attribute));
  return mangled != nullptr ? mangled : qualified_name(function);
}

// Adds the functions that contain the address, the innermost inlined one first, and tells whether
// there are any. (dwarf_getscopes does not enter namespaces, where Clang puts functions.)
bool add_functions(Dwarf_Die& parent, Dwarf_Addr address, std::vector<Dwarf_Die>& functions) {
  Dwarf_Die child;
  if (dwarf_child(&parent, &child) != 0) return false;
  do {
    const int tag = dwarf_tag(&child);
    const bool is_function = tag == DW_TAG_subprogram;
    const bool contains = dwarf_haspc(&child, address) == 1;
    // A function's own entry may contain those of its local classes.
    if (!contains && !is_function && !is_namespace_or_class(child)) continue;
    const bool found = add_functions(child, address, functions);
    if (contains && (is_function || tag == DW_TAG_inlined_subroutine)) functions.push_back(child);
    if (found || contains) return !functions.empty();
  } while (dwarf_siblingof(&child, &child) == 0);
  return false;
}

// Those of a unit; what -gsplit-dwarf has put into another file is read there.
std::vector<Dwarf_Die> functions_at(Dwarf_Die& unit, Dwarf_Addr address) {
  std::uint8_t kind = 0;
  Dwarf_Die split;
  dwarf_cu_info(unit.cu, nullptr, &kind, nullptr, &split, nullptr, nullptr, nullptr);
  std::vector<Dwarf_Die> functions;
  add_functions(kind == DW_UT_skeleton ? split : unit, address, functions);
  return functions;
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
  const std::vector<Dwarf_Die> functions = functions_at(*unit, address - bias);
  if (functions.empty()) return {outer};  // without them a line may be an inlined function's
  std::vector<Frame> frames;
  Place place = place_at(*unit, address - bias);
  for (Dwarf_Die function : functions) {
    if (dwarf_tag(&function) == DW_TAG_subprogram) break;
    Frame frame{function_name(function), place.file, place.line, outer.object};
    // Clang's -g1 has neither namespaces nor mangled names: one of another file may be LibTorch's.
    const bool has_scope =
        frame.function.starts_with("_Z") || frame.function.find("::") != frame.function.npos;
    if (has_scope || place.file == file_name(dwarf_diename(unit)))
      frames.push_back(std::move(frame));
    place = call_of(function, *unit);
  }
  outer.file = place.file;
  outer.line = place.line;
  frames.push_back(outer);
  return frames;
}

}  // namespace use_gpu::detail
