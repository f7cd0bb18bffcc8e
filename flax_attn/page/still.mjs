// The page of runs that nobody asks.

import { buildPage } from "./page.mjs";

buildPage();
