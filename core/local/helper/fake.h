/* helper/fake.h: for machines of one id: changes of owner and id report success and do nothing, so
 * that package managers and the like work. No separation: the same id stands behind every name. */
#pragma once

/* Puts this process and all that it starts behind the filter. 0 or a negative errno. */
int fake_ids(void);
