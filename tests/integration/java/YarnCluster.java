import java.io.FileOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A YARN of one resource manager and two node managers, until its input ends; writes its settings to the file that is named. */
public final class YarnCluster {
    public static void main(String[] arguments) throws Exception {
        YarnConfiguration settings = new YarnConfiguration();
        settings.set("fs.defaultFS", "file:///");
        settings.setInt(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, 256);
        settings.setBoolean(YarnConfiguration.NM_VMEM_CHECK_ENABLED, false);
        settings.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.9");
        settings.set("yarn.scheduler.capacity.root.queues", "default");
        settings.set("yarn.scheduler.capacity.root.default.capacity", "100");
        settings.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1");
        MiniYARNCluster cluster = new MiniYARNCluster("penstock", 2, 1, 1);
        cluster.init(settings);
        cluster.start();
        cluster.waitForNodeManagersToConnect(60_000);
        Path file = Path.of(arguments[0]);
        Path written = file.resolveSibling(file.getFileName() + ".part");
        try (FileOutputStream out = new FileOutputStream(written.toFile())) {
            cluster.getConfig().writeXml(out);
        }
        Files.move(written, file, StandardCopyOption.ATOMIC_MOVE);
        while (System.in.read() >= 0) {}
        cluster.stop();
        System.exit(0);
    }
}
