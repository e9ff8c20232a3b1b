// Draws a plan as plain SVG, without scripts or style sheets, for any browser.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "plan_report.hpp"

namespace actzip::cli {
namespace {

constexpr double kLeft = 60;
constexpr double kRight = 80;
constexpr double kTop = 60;
constexpr double kPlotHeight = 240;
constexpr double kBottom = kTop + kPlotHeight;
constexpr double kNamesHeight = 260;
constexpr double kLeastWidth = 640;
constexpr double kMostWidth = 1800;
constexpr double kSiteWidth = 16;
constexpr std::size_t kMostNames = 100;  ///< with more sites, names would overlap
constexpr std::size_t kMostNameLength = 40;
constexpr std::string_view kBarColour = "#4878a8";
constexpr std::string_view kLineColour = "#c44e32";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return result;
}

/// Shortens a name without splitting a character: in UTF-8, bytes starting with the bits 10 continue one.
std::string shortened(const std::string& name) {
  if (name.size() <= kMostNameLength) return name;
  std::size_t end = kMostNameLength - 3;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U) --end;
  return name.substr(0, end) + "...";
}

/// A logarithmic scale from `low` at the bottom of the plot to `high` at its top.
struct LogScale {
  double low;
  double high;
  [[nodiscard]] double y(double value) const {
    const double height = std::log(std::max(value, low) / low) / std::log(high / low);
    return kBottom - kPlotHeight * std::min(height, 1.0);
  }
};

class Picture {
 public:
  explicit Picture(const PlanResult& result)
      : result_(result),
        sites_(result.items.size()),
        plot_width_(std::clamp(kSiteWidth * static_cast<double>(sites_), kLeastWidth, kMostWidth)),
        named_(sites_ <= kMostNames) {}

  std::string draw() {
    const double width = kLeft + plot_width_ + kRight;
    const double height = kBottom + (named_ ? kNamesHeight : 40);
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" )"
        R"(font-family="sans-serif" font-size="11">)",
        width, height);
    add(R"(<rect width="100%" height="100%" fill="white"/>)");
    add(R"(<text x="{}" y="20" font-size="14">{:.3g} bits an element, {} of the variance of uniform bits</text>)",
        kLeft, result_.plan.average_bits,
        result_.uniform_variance > 0 ? fmt::format("{:.3f}", result_.plan.variance / result_.uniform_variance) : "all");
    add_bits();
    add_sensitivity();
    add("</svg>");
    return out_;
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), text, std::forward<Args>(args)...);
    out_ += '\n';
  }

  [[nodiscard]] double site_width() const { return plot_width_ / static_cast<double>(sites_); }
  [[nodiscard]] double centre(std::size_t site) const {
    return kLeft + (static_cast<double>(site) + 0.5) * site_width();
  }

  void add_bits() {
    int most = 8;
    for (std::size_t i = 0; i < sites_; ++i) most = std::max(most, result_.choice(i).bits);
    const LogScale scale{0.5, static_cast<double>(most)};  // starts at 0.5, so that a bar of 1 bit is visible
    add(R"(<text x="{}" y="{}" fill="{}">bits</text>)", kLeft - 30, kTop - 12, kBarColour);
    for (int bits = 1; bits <= most; bits *= 2) {
      const double y = scale.y(bits);
      add(R"(<line x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}" stroke="#ddd"/>)", kLeft, kLeft + plot_width_, y, y);
      add(R"(<text x="{}" y="{:.1f}" text-anchor="end">{}</text>)", kLeft - 6, y + 4, bits);
    }
    for (std::size_t i = 0; i < sites_; ++i) add_bar(i, scale.y(result_.choice(i).bits));
  }

  void add_bar(std::size_t site, double top) {
    const std::string& name = result_.report.sites[site].name;
    const double width = 0.8 * site_width();
    add(R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" fill="{}"><title>{}: {}</title></rect>)",
        centre(site) - width / 2, top, width, kBottom - top, kBarColour, escaped(name), kept_as(result_.choice(site)));
    if (!named_) return;
    add(R"svg(<text transform="translate({:.1f} {}) rotate(-90)" text-anchor="end">{}</text>)svg", centre(site) + 4,
        kBottom + 8, escaped(shortened(name)));
  }

  [[nodiscard]] double sensitivity(std::size_t site) const {
    return result_.items[site].sensitivity / static_cast<double>(result_.items[site].elems);
  }

  /// Draws the line on a scale of whole powers of ten. Sites with sensitivity 0 lie on the axis.
  void add_sensitivity() {
    double least = 0.0;
    double most = 0.0;
    for (std::size_t i = 0; i < sites_; ++i) {
      const double value = sensitivity(i);
      if (value > 0.0 && (least == 0.0 || value < least)) least = value;
      most = std::max(most, value);
    }
    if (most == 0.0) return;
    const int low = static_cast<int>(std::floor(std::log10(least)));
    const int high = std::max(low + 1, static_cast<int>(std::ceil(std::log10(most))));
    const LogScale scale{std::pow(10.0, low), std::pow(10.0, high)};
    const double right = kLeft + plot_width_;
    add(R"(<text x="{}" y="{}" text-anchor="end" fill="{}">sensitivity of an element</text>)", right + 40, kTop - 12,
        kLineColour);
    constexpr int kTicks = 8;
    for (int power = low; power <= high; power += (high - low) / kTicks + 1) {
      add(R"(<text x="{}" y="{:.1f}" fill="{}">1e{}</text>)", right + 6, scale.y(std::pow(10.0, power)) + 4,
          kLineColour, power);
    }
    std::string points;
    for (std::size_t i = 0; i < sites_; ++i)
      points += fmt::format("{:.2f},{:.1f} ", centre(i), scale.y(sensitivity(i)));
    add(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="1.5"/>)", points, kLineColour);
  }

  const PlanResult& result_;
  std::size_t sites_;
  double plot_width_;
  bool named_;
  std::string out_;
};

}  // namespace

std::string plan_svg(const PlanResult& result) { return Picture(result).draw(); }

}  // namespace actzip::cli
