// SPDX-License-Identifier: MIT
#include "ptx_linker.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "kernel_error.hpp"

namespace simulate_gpus {
namespace {

enum class Linkage { own, visible, weak, external };

// What stands at the outermost level of a text: a directive, a variable, a function's declaration or its body.
struct Item {
  std::string text;
  std::string name;  // empty for directives
  Linkage linkage = Linkage::own;
  bool is_function = false, has_body = false;
};

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
}

// The end of what begins at `place` and is no code: a comment or a string; `place` itself if none begins there.
std::size_t skip(std::string_view text, std::size_t place) {
  const auto after = [&](std::string_view end, std::size_t from) {
    const auto found = text.find(end, from);
    return found == std::string_view::npos ? text.size() : found + end.size();
  };
  if (text.substr(place, 2) == "//") return after("\n", place);
  if (text.substr(place, 2) == "/*") return after("*/", place + 2);
  if (text[place] == '"') return after("\"", place + 1);
  return place;
}

// The words of an item before its body or its values.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t place = 0; place < text.size();) {
    if (const auto end = skip(text, place); end != place) {
      place = end;
    } else if (is_name_character(text[place]) || text[place] == '.' || text[place] == '%') {
      const auto begin = place++;
      while (place < text.size() && is_name_character(text[place])) ++place;
      words.push_back(text.substr(begin, place - begin));
    } else {
      if (std::string_view("([{=,;").find(text[place]) != std::string_view::npos)
        words.push_back(text.substr(place, 1));
      ++place;
    }
  }
  return words;
}

void classify(Item& item) {
  const auto words = words_of(item.text);
  const auto has = [&](std::string_view word) { return std::ranges::count(words, word) > 0; };
  const auto kind = std::ranges::find_if(words, [](std::string_view word) {
    return word == ".func" || word == ".entry" || word == ".global" || word == ".const" ||
           word == ".shared";
  });
  if (kind == words.end()) return;
  item.is_function = *kind == ".func" || *kind == ".entry";
  item.has_body = item.is_function && has("{");
  const auto before = [&](std::string_view word) {
    return std::find(words.begin(), kind, word) != kind;
  };
  item.linkage = before(".extern")                      ? Linkage::external
                 : before(".weak") || before(".common") ? Linkage::weak
                 : before(".visible")                   ? Linkage::visible
                                                        : Linkage::own;
  bool is_in_parentheses = false;  // of what a function returns
  for (auto word = kind + 1; word != words.end(); ++word) {
    const char first = word->front();
    if (first == '(' && item.name.empty() && item.is_function) is_in_parentheses = true;
    const bool ends = first == '(' || first == '[' || first == '=' || first == ';' ||
                      first == '{' || first == ',';
    if (!item.name.empty() && ends && !is_in_parentheses) return;
    if (is_in_parentheses && first != '(' && first != '.' && !ends) {
      is_in_parentheses = false;  // the name of the returned parameter
      continue;
    }
    if (!ends && (std::isalpha(static_cast<unsigned char>(first)) != 0 || first == '_' ||
                  first == '$' || first == '%'))
      item.name = *word;
  }
}

std::vector<Item> items_of(std::string_view text) {
  std::vector<Item> items;
  Item item;
  int depth = 0;
  const auto finish = [&] {
    classify(item);
    items.push_back(std::exchange(item, {}));
  };
  for (std::size_t place = 0; place < text.size();) {
    if (const auto end = skip(text, place); end != place) {
      if (text[place] == '"') item.text += text.substr(place, end - place);
      place = end;
      continue;
    }
    const char c = text[place++];
    const bool is_blank = item.text.find_first_not_of(" \t\r\n") == std::string::npos;
    if (c == '\n' && depth == 0 && !is_blank) {
      // Directives end with their line.
      const auto words = words_of(item.text);
      if (!words.empty() && (words.front() == ".version" || words.front() == ".target" ||
                             words.front() == ".address_size" || words.front() == ".file" ||
                             words.front() == ".loc")) {
        finish();
        continue;
      }
    }
    item.text += c;
    if (c == '{') ++depth;
    if (c == '}' && --depth == 0 && item.text.find('=') > item.text.find('{')) finish();
    if (c == ';' && depth == 0) finish();
  }
  return items;
}

// Each name in the text that has a new one.
std::string renamed(std::string_view text,
                    const std::map<std::string, std::string, std::less<>>& names) {
  std::string result;
  for (std::size_t place = 0; place < text.size();) {
    if (!is_name_character(text[place]) && text[place] != '%') {
      result += text[place++];
      continue;
    }
    const auto begin = place++;
    while (place < text.size() && is_name_character(text[place])) ++place;
    const std::string_view word = text.substr(begin, place - begin);
    const auto found = names.find(word);
    result += found == names.end() ? word : std::string_view(found->second);
  }
  return result;
}

// The larger of two versions or targets, which sort by their numbers.
std::string newest(const std::string& first, const std::string& second) {
  const auto number = [](const std::string& text) {
    const auto digits = text.find_first_of("0123456789");
    return digits == std::string::npos ? 0.0 : std::atof(text.c_str() + digits);
  };
  return number(second) > number(first) ? second : first;
}

}  // namespace

std::string link_ptx(const std::vector<std::string>& texts) {
  std::vector<std::vector<Item>> objects;
  std::set<std::string> defined;
  std::map<std::string, std::set<std::size_t>> used_in;  // by which objects
  for (const std::string& text : texts) {
    for (const Item& item : objects.emplace_back(items_of(text))) {
      used_in[item.name].insert(objects.size());
      const bool defines = !item.is_function || item.has_body;
      if (item.linkage == Linkage::visible && defines && !item.name.empty() &&
          !defined.insert(item.name).second)
        throw KernelError(cudaErrorInvalidPtx,
                          "two of the linked objects define " + item.name.substr(0, 200));
    }
  }
  std::string version, target, variables, declarations, bodies;
  std::set<std::string> weak_variables, weak_functions, declared;
  for (std::size_t object = 0; object < objects.size(); ++object) {
    std::map<std::string, std::string, std::less<>> own_names;
    for (const Item& item : objects[object]) {
      // The host looks static kernels and variables up by their names, which differ already.
      if (item.linkage == Linkage::own && !item.name.empty() && used_in[item.name].size() > 1)
        own_names.emplace(item.name, item.name + "$" + std::to_string(object));
    }
    for (const Item& item : objects[object]) {
      const auto begin = item.text.find_first_not_of(" \t\r\n");
      if (begin == std::string::npos) continue;
      const std::string text = renamed(std::string_view(item.text).substr(begin), own_names);
      if (item.name.empty()) {
        if (text.starts_with(".version")) version = newest(version, text);
        if (text.starts_with(".target")) target = newest(target, text);
        continue;  // of the lines of sources nothing is kept
      }
      const bool is_defined = defined.contains(item.name);
      if (!item.is_function) {
        if (item.linkage == Linkage::external && is_defined) continue;
        if (item.linkage == Linkage::weak &&
            (is_defined || !weak_variables.insert(item.name).second))
          continue;
        variables += text + "\n";
      } else if (!item.has_body) {
        if (item.linkage != Linkage::own && !declared.insert(item.name).second) continue;
        const bool is_external = item.linkage == Linkage::external && is_defined;
        declarations +=
            (is_external ? ".visible" + text.substr(text.find(".extern") + 7) : text) + "\n";
      } else if (item.linkage != Linkage::weak ||
                 (!is_defined && weak_functions.insert(item.name).second)) {
        bodies += text + "\n";
      }
    }
  }
  return version + "\n" + target + "\n.address_size 64\n" + variables + declarations + bodies;
}

}  // namespace simulate_gpus
