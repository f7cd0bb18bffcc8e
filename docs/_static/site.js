// What scrolls sideways is reached by the keyboard, too.
function reachScrolling() {
  for (const box of document.querySelectorAll(".content pre, .content .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

// The two bars at the sides have names, by which a screen reader tells them apart.
function nameBars() {
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "All pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
}

addEventListener("DOMContentLoaded", nameBars);
addEventListener("load", reachScrolling);
addEventListener("resize", reachScrolling);
