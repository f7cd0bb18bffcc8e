// What scrolls sideways is reached by the keyboard, too.
function reachScrolling() {
  for (const box of document.querySelectorAll(".content pre, .content .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

addEventListener("load", reachScrolling);
addEventListener("resize", reachScrolling);
